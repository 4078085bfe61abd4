"""The report: one page with timeline, flame graph, tables and summary, linked with each other.

`document` writes it, `contents` collects what is in it, `spans`, `samples`, `moments` and `tables`
turn tables of the recording into blocks that the page reads. Each file of `pages` is a page.
"""
