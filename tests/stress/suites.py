"""The tests of others under `layerscope run`: each ends as it does bare."""
SUITES = {}
