// What functions of the C interface return: a status, into which one guard turns exceptions, and
// handles that the caller destroys, reports among them.
#pragma once

#include <string>
#include <utility>

#include "capi/arguments.h"
#include "fovea/fovea.h"

struct fovea_report_s {
  std::string text;
};

namespace fovea::capi {

// The status of the exception that is being handled; its text becomes fovea_last_error().
fovea_status status_of_current_exception() noexcept;

// Every function that can fail runs inside of this.
template <class Body>
fovea_status guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return FOVEA_OK;
  } catch (...) {
    return status_of_current_exception();
  }
}

// Sets *out to the new handle that `make` returns, or to NULL if it fails.
template <class Handle, class Make>
fovea_status create(Handle* out, const char* name, Make&& make) noexcept {
  return guarded([&] {
    need(out, name);
    *out = nullptr;
    *out = make();
  });
}

inline fovea_report new_report(std::string text) { return new fovea_report_s{std::move(text)}; }

// The same for a report with the text that `write` returns.
template <class Write>
fovea_status report_text(fovea_report* out, const char* name, Write&& write) noexcept {
  return create(out, name, [&] { return new_report(write()); });
}

// The content of a handle, or InvalidArgument that names the argument.
template <class Handle>
auto& content(Handle handle, const char* name) {
  need(handle, name);
  return *handle;
}

}  // namespace fovea::capi
