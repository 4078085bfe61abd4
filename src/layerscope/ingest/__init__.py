"""Sources to tables: parents, self times, links, modules, steps, thinning, samples."""
