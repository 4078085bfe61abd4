"""The rules of `layerscope findings`: one file each, found by this folder."""
