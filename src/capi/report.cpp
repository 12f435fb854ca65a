// Reports, and what else is only text.
#include "base/log.h"
#include "capi/handles.h"
#include "fovea/fovea.h"

const char* fovea_report_text(fovea_report report) {
  return report == nullptr ? "" : report->text.c_str();
}

void fovea_report_destroy(fovea_report report) { delete report; }

void fovea_set_log(void (*log)(void* context, const char* line), void* context) {
  fovea::set_log(log, context);
}
