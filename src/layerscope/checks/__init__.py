"""What the facts about a machine mean for a deep-learning program: one file a check in
`machine`.
"""
