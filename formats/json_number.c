// Number tokens, read from their digits: no doubles, no locale.
#include "json.h"

#include <string.h>

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool fq_json_u64(uint64_t *out, const char *text, size_t nbytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < nbytes; i++) {
        if (!is_digit(text[i]) || __builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value))
            return false;
    }
    *out = value;
    return nbytes > 0;
}

// The exponent behind the e of a number token, cut to ±10^12: no token has that many digits.
static int64_t read_exponent(const char *text, size_t nbytes) {
    const int64_t most = INT64_C(1000000000000);
    int64_t value = 0;
    for (size_t i = 0; i < nbytes; i++) {
        if (is_digit(text[i]) && value < most)
            value = value * 10 + (text[i] - '0');
    }
    value = value < most ? value : most;
    return nbytes > 0 && text[0] == '-' ? -value : value;
}

bool fq_json_number_is_finite(const char *text, size_t nbytes) {
    // The largest double is 0.17976931348623157…e309 as every printer writes it. Of what lies
    // beyond in the 17th digit, some rounds down to it; the reference implementation refuses that
    // as well.
    static const char largest[] = "17976931348623157";
    enum { N_LEADING = sizeof largest - 1, LARGEST_EXPONENT = 309 };
    if (nbytes < LARGEST_EXPONENT && !memchr(text, 'e', nbytes) && !memchr(text, 'E', nbytes))
        return true; // too few digits, as nearly always
    char leading[N_LEADING];
    memset(leading, '0', sizeof leading);
    size_t n_leading = 0;
    int64_t exponent = 0; // of the value as 0.d1d2d3…e<exponent>, d1 not 0
    bool in_fraction = false;
    size_t i = 0;
    for (; i < nbytes && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.')
            in_fraction = true;
        if (!is_digit(text[i]))
            continue;
        const bool is_leading_zero = text[i] == '0' && n_leading == 0;
        if (in_fraction)
            exponent -= is_leading_zero;
        else
            exponent += !is_leading_zero;
        if (!is_leading_zero && n_leading < N_LEADING)
            leading[n_leading++] = text[i];
    }
    if (n_leading == 0)
        return true; // zero, whatever its exponent
    if (i < nbytes)
        exponent += read_exponent(text + i + 1, nbytes - i - 1);
    if (exponent != LARGEST_EXPONENT)
        return exponent < LARGEST_EXPONENT;
    return memcmp(leading, largest, N_LEADING) <= 0;
}
