// A list of names for one line of a message: the first few, and how many more.
#include "name_list.h"

#include <stdio.h>
#include <string.h>

void fq_name_list_add(fq_name_list *list, const char *name) {
    const int longest = FQ_NAME_LIST_NAME_SIZE - (int)sizeof ", ...";
    char *end = list->text + list->shown_nbytes;
    const size_t room = sizeof list->text - list->shown_nbytes;
    list->n++;
    if (list->n > FQ_NAME_LIST_SHOWN) {
        snprintf(end, room, " and %zu more", list->n - FQ_NAME_LIST_SHOWN);
        return;
    }
    const char *cut = strlen(name) > (size_t)longest ? "..." : "";
    const char *comma = list->n > 1 ? ", " : "";
    list->shown_nbytes += (size_t)snprintf(end, room, "%s%.*s%s", comma, longest, name, cut);
}
