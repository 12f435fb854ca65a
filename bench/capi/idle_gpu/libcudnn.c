/* As libcuda.c: the calls of a libcudnn.so.9 that handles are made with. */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

static int anything;

EXPORT size_t cudnnGetVersion(void) { return 91900; }
EXPORT const char* cudnnGetErrorString(int status) {
  (void)status;
  return "success";
}
EXPORT int cudnnCreate(void** handle) { return *handle = &anything, 0; }
EXPORT int cudnnSetStream(void* handle, void* stream) {
  (void)handle, (void)stream;
  return 0;
}
