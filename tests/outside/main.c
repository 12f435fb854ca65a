/* The public header and a call through it, in strict C99. */
#include <fovea/fovea.h>
#include <stdio.h>

int main(void) {
  printf("%s %d.%d.%d\n", fovea_version(), FOVEA_VERSION_MAJOR, FOVEA_VERSION_MINOR,
         FOVEA_VERSION_PATCH);
  return 0;
}
