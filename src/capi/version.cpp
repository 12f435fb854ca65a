#include "fovea/fovea.h"

#define FOVEA_TEXT(x) #x
#define FOVEA_DOTTED(a, b, c) FOVEA_TEXT(a) "." FOVEA_TEXT(b) "." FOVEA_TEXT(c)

const char* fovea_version() {
  return FOVEA_DOTTED(FOVEA_VERSION_MAJOR, FOVEA_VERSION_MINOR, FOVEA_VERSION_PATCH);
}
