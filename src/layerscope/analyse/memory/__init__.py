"""What the blocks of the table `allocations` say: how much memory is held, by whom and why."""
