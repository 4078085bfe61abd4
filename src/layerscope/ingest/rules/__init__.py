"""The rules by which the steps of a process are found, one file each; `layerscope.ingest.steps`
picks one.
"""
