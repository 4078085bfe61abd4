"""Tries settings of the machine on an unchanged program, measures each beside the defaults, and
says how sure it is.
"""
