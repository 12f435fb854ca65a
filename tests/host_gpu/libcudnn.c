/* The calls of a libcudnn.so.9 that src/cuda and handles make. Its handles can be told apart. */
#include <stddef.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT size_t cudnnGetVersion(void) { return 91900; }
EXPORT const char* cudnnGetErrorString(int status) {
  (void)status;
  return "an error";
}
EXPORT int cudnnCreate(void** handle) {
  *handle = malloc(1); /* never destroyed, as the real ones */
  return *handle == NULL;
}
EXPORT int cudnnSetStream(void* handle, void* stream) {
  (void)handle, (void)stream;
  return 0;
}
