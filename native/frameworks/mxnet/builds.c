/* The builds of MXNet that were looked at. What is read of their objects is read by offsets, so a build that is not
 * among these is not recorded: a wrong offset would read what is no name. */
#define _GNU_SOURCE
#include "mxnet.h"

#include <string.h>

#define EXECUTE "_ZN5mxnet6engine14ThreadedEngine15ExecuteOprBlockENS_10RunContextEPNS0_8OprBlockE"
#define NAIVE "_ZN5mxnet6engine11NaiveEngine"
#define PUSH_NAIVE NAIVE "9PushAsyncESt8functionIFvNS_10RunContextENS0_"
#define ALLOCATED "21DeviceStorageProfiler7OnAllocERKNS_7Storage6HandleE"
#define FREED "21DeviceStorageProfiler6OnFreeERKNS_7Storage6HandleE"

/* NaiveEngine::Push and DeleteVariable call PushAsync, but in 2.0.0b1 a copy of it that the compiler made. */
static const ls_mxnet_build KNOWN[] = {
    /* 1.9.1, the wheel for Linux on x86-64 */
    {"472988f6268780302be9ee15d6c53d9a07b534f5", 8, 88, 32, 56, EXECUTE,
     PUSH_NAIVE "18CallbackOnCompleteEEENS_7ContextERKSt6vectorIPNS0_3VarESaISA_EESE_NS_10FnPropertyEiPKcb", NULL, NULL,
     "_ZN5mxnet7storage" ALLOCATED, "_ZN5mxnet7storage" FREED},
    /* 2.0.0b1, the wheel for Linux on x86-64 */
    {"253f6e82c9aa7c1924a1309ab42b273c9afc0816", 8, 88, 32, 56,
     "_ZN5mxnet6engine14ThreadedEngine15ExecuteOprBlockENS_10RunContextEPNS0_8OprBlockENS0_15CallbackOnStartENS0_"
     "18CallbackOnCompleteE",
     PUSH_NAIVE "15CallbackOnStartENS0_18CallbackOnCompleteEEENS_7ContextERKSt6vectorIPNS0_3VarESaISB_EESF_NS_"
                "10FnPropertyEiPKcb",
     NAIVE "4PushEPNS0_3OprENS_7ContextEib",
     NAIVE "14DeleteVariableESt8functionIFvNS_10RunContextEEENS_7ContextEPNS0_3VarE",
     "_ZN5mxnet8profiler" ALLOCATED, "_ZN5mxnet8profiler" FREED},
};

/* The build with this build-id; NULL: nobody has looked at it. */
const ls_mxnet_build *ls_mxnet_build_of(const char *build_id) {
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (!strcmp(KNOWN[i].build_id, build_id))
            return &KNOWN[i];
    return NULL;
}

/* Whether it is known: asked from outside of the program too. */
LS_EXPORT int ls_mxnet_knows(const char *build_id) { return ls_mxnet_build_of(build_id) != NULL; }
