"""Servers that hand requests to a program: one folder each, called as the program imports it, whose
`inside/hook.py` runs in the program (`capture.adapter` says what it defines).

A request begins where the server has read its head, and ends where the program has given the last
part of the answer.
"""
