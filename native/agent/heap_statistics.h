/* How much memory the C library's allocator has. */
#ifndef LAYERSCOPE_HEAP_STATISTICS_H
#define LAYERSCOPE_HEAP_STATISTICS_H

/* Tell it, if that is due. Not called inside of the allocator. */
void ls_heap_tell(void);

#endif
