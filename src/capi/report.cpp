#include "capi/report.h"

#include <exception>
#include <new>
#include <string>

#include "base/error.h"
#include "base/log.h"

namespace fovea::capi {
namespace {

// The text of this thread's last failure. Memory may be what failed, so there is a text that needs
// none.
struct LastError {
  std::string text;
  const char* shown = "";
};
thread_local LastError last_error;

fovea_status fail(fovea_status status, const char* text) noexcept {
  try {
    last_error.text = text;
    last_error.shown = last_error.text.c_str();
  } catch (...) {
    last_error.shown = "out of memory, also for the text of the error";
  }
  return status;
}

}  // namespace

fovea_status status_of_current_exception() noexcept {
  try {
    throw;
  } catch (const InvalidArgument& e) {
    return fail(FOVEA_INVALID_ARGUMENT, e.what());
  } catch (const Unsupported& e) {
    return fail(FOVEA_UNSUPPORTED, e.what());
  } catch (const DeviceError& e) {
    return fail(FOVEA_DEVICE_ERROR, e.what());
  } catch (const InternalError& e) {
    return fail(FOVEA_INTERNAL_ERROR, e.what());
  } catch (const std::bad_alloc&) {
    return fail(FOVEA_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    try {
      return fail(FOVEA_INTERNAL_ERROR, InternalError(e.what()).what());
    } catch (...) {
      return fail(FOVEA_INTERNAL_ERROR, e.what());
    }
  } catch (...) {
    return fail(FOVEA_INTERNAL_ERROR,
                "internal error in Fovea (please report it): an exception of an unknown type");
  }
}

}  // namespace fovea::capi

const char* fovea_last_error() { return fovea::capi::last_error.shown; }

const char* fovea_status_name(fovea_status status) {
  switch (static_cast<int>(status)) {
    case FOVEA_OK: return "FOVEA_OK";
    case FOVEA_INVALID_ARGUMENT: return "FOVEA_INVALID_ARGUMENT";
    case FOVEA_UNSUPPORTED: return "FOVEA_UNSUPPORTED";
    case FOVEA_DEVICE_ERROR: return "FOVEA_DEVICE_ERROR";
    case FOVEA_OUT_OF_MEMORY: return "FOVEA_OUT_OF_MEMORY";
    case FOVEA_INTERNAL_ERROR: return "FOVEA_INTERNAL_ERROR";
  }
  return "unknown status";
}

const char* fovea_report_text(fovea_report report) {
  return report == nullptr ? "" : report->text.c_str();
}

void fovea_report_destroy(fovea_report report) { delete report; }

void fovea_set_log(void (*log)(void* context, const char* line), void* context) {
  fovea::set_log(log, context);
}

#define FOVEA_TEXT(x) #x
#define FOVEA_DOTTED(a, b, c) FOVEA_TEXT(a) "." FOVEA_TEXT(b) "." FOVEA_TEXT(c)

const char* fovea_version() {
  return FOVEA_DOTTED(FOVEA_VERSION_MAJOR, FOVEA_VERSION_MINOR, FOVEA_VERSION_PATCH);
}
