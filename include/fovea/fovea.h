/* Fovea's C interface, all of it. C99; no type of any other library appears here.
   C++ users include fovea.hpp, which is a header over this one. */
#ifndef FOVEA_FOVEA_H
#define FOVEA_FOVEA_H

/* The only place where the version is written; the build reads it from here. */
#define FOVEA_VERSION_MAJOR 0
#define FOVEA_VERSION_MINOR 1
#define FOVEA_VERSION_PATCH 0

#if defined(__GNUC__)
#define FOVEA_API __attribute__((visibility("default")))
#else
#define FOVEA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that is loaded, as "major.minor.patch". It may differ from the macros
   above, which are those of the header the caller was compiled with. The text lives as long as the
   library. */
FOVEA_API const char* fovea_version(void);

#ifdef __cplusplus
}
#endif

#endif
