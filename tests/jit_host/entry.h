// The end of every kernel's shared object: what Module and launch call.
#pragma once

#include "machine.h"

namespace fovea::on_host {

template <int... i>
struct Numbers {};

template <class... Parameters, int... i>
void call(void (*kernel)(Parameters...), void** parameters, Numbers<i...>) {
  kernel(*static_cast<const Parameters*>(parameters[i])...);
}
template <class... Parameters>
void call(void (*kernel)(Parameters...), void** parameters) {
  call(kernel, parameters, Numbers<__integer_pack(sizeof...(Parameters))...>{});
}

}  // namespace fovea::on_host

extern "C" __attribute__((visibility("default"))) void fovea_set_machine(
    const fovea::on_host::Machine* machine) {
  fovea::device::machine = machine;
}

#define FOVEA_HOST_ENTRY(name)                                                                 \
  extern "C" __attribute__((visibility("default"))) void fovea_run_##name(void** parameters) { \
    fovea::on_host::call(&name, parameters);                                                   \
  }
