/* A program that records itself, and has a library in it that uses ITT: tests/native/itt_client.c, whose main function
 * is `use_itt` here. */
#include "layerscope.h"

int use_itt(int arguments, char **argument);

int main(int arguments, char **argument) {
    if (layerscope_set_state("run"))
        return 1;
    layerscope_push("program", "around");
    int status = use_itt(arguments, argument);
    layerscope_pop();
    return status;
}
