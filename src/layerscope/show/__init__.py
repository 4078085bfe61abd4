"""Results in, bytes out: one file per output. Nothing here computes; every number comes from
`analyse`.
"""
