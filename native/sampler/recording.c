/* What all files know of the recording. */
#define _GNU_SOURCE
#include "recording.h"

sm_recording sm;
