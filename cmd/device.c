// Looks for the device of a run and opens it: see device.h.
#include "device.h"

#include "kernels/kernels.h"

#include <string.h>

static bool is_auto(const fq_device_needs *needs) {
    return strcmp(needs->device, FQ_DEVICE_AUTO) == 0;
}

static fq_status choose(fq_device_choice *out, const fq_device_needs *needs, fq_error *err) {
    const fq_device_work work = {.nbytes = needs->nbytes,
                                 .n_files = needs->n_files,
                                 .n_products = needs->n_products,
                                 .n_threads = needs->staging->n_lanes};
    return fq_device_choose(out, needs->device, &work, err);
}

static fq_status open_choice(fq_device **out, const fq_device_choice *choice,
                             const fq_device_needs *needs, fq_error *err) {
    const fq_staging *staging = needs->staging;
    const fq_device_options options = {
        .n_lanes = staging->n_lanes,
        .max_elements = staging->band_elements,
        .max_blocks = fq_band_max_blocks(staging->band_elements),
        .for_checks = needs->for_checks,
        .gpus = choice->gpus,
        .n_gpus = choice->n_gpus,
    };
    return choice->backend->open(out, &options, err);
}

fq_status fq_device_open(fq_device **out, const fq_backend **backend, const fq_device_needs *needs,
                         fq_messages *warnings, fq_error *err) {
    fq_device_choice choice;
    fq_error why_not = {0};
    fq_status status = choose(&choice, needs, err);
    if (status)
        return status;
    if (is_auto(needs) && choice.n_gpus > 0) {
        if (open_choice(out, &choice, needs, &why_not) == FQ_OK) {
            *backend = choice.backend;
            return FQ_OK;
        }
        fq_messages_add(warnings, "%s; the CPU computes instead", why_not.text);
        status = fq_device_choose(&choice, "cpu", NULL, err);
    }
    *backend = choice.backend;
    return status ? status : open_choice(out, &choice, needs, err);
}

static fq_device_needs needs_of(const fq_session *session) {
    return (fq_device_needs){.device = session->request->common->device,
                             .staging = &session->staging,
                             .nbytes = fq_plan_arithmetic_nbytes(&session->plan),
                             .n_files = session->plan.n_shards};
}

fq_status fq_session_check_device(const fq_session *session, fq_error *err) {
    const fq_device_needs needs = needs_of(session);
    fq_device_choice choice;
    return is_auto(&needs) ? FQ_OK : choose(&choice, &needs, err);
}

fq_status fq_session_open_device(fq_device **out, const fq_backend **backend,
                                 const fq_session *session, fq_reply *reply, fq_error *err) {
    const fq_device_needs needs = needs_of(session);
    return fq_device_open(out, backend, &needs, &reply->warnings, err);
}
