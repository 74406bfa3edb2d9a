// A list of names for one line of a message: the first few, and how many more.
#ifndef FQ_FORMATS_NAME_LIST_H
#define FQ_FORMATS_NAME_LIST_H

#include <stddef.h>

enum { FQ_NAME_LIST_SHOWN = 8, FQ_NAME_LIST_NAME_SIZE = 160 };

// Zeroed is empty.
typedef struct fq_name_list {
    size_t n;                                                     // names added
    char text[(FQ_NAME_LIST_SHOWN + 1) * FQ_NAME_LIST_NAME_SIZE]; // "a, b and 3 more"
    size_t shown_nbytes;                                          // of text: the names alone
} fq_name_list;

// Adds a name. Long names are cut, and after FQ_NAME_LIST_SHOWN they are only counted.
void fq_name_list_add(fq_name_list *list, const char *name);

#endif
