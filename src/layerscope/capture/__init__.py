"""In the program and beside it: everything that writes raw files. What runs inside the program lies
in `inside`.
"""
