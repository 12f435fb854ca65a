/* The part of the C interface that concerns plans that are kept: in the memory of this process, in
 * the user's cache folder, in bundles. Included by fovea.h, whose rules hold here; include that.
 * docs/caching.md explains.
 */
#ifndef FOVEA_CACHING_H
#define FOVEA_CACHING_H

#ifndef FOVEA_FOVEA_H
#error "include fovea/fovea.h"
#endif

/* ---- in the memory of this process ---- */

typedef struct fovea_cache_stats {
  size_t struct_size;
  uint64_t hits, misses, builds, evictions;
  uint64_t plans, bytes; /* held now */
  double build_seconds;
  /* What engines read from files instead of compiling it, and what they wrote to the folder. */
  uint64_t disk_hits, bundle_hits, disk_writes;
} fovea_cache_stats;

FOVEA_API fovea_status fovea_cache_statistics(fovea_cache_stats* stats);
FOVEA_API fovea_status fovea_cache_clear(void);
/* At most so many plans and bytes; 0: leave as it is. */
FOVEA_API fovea_status fovea_cache_limit(uint64_t plans, uint64_t bytes);

/* ---- in bundles: files of plans that were compiled ahead, for this machine or for others ---- */

/* Its plans are used from now on, before those of the cache folder; so are those of the files that
 * FOVEA_BUNDLE names. FOVEA_INVALID_ARGUMENT: it cannot be read, is damaged or of another format.
 * FOVEA_UNSUPPORTED: it was made for another library or architecture. */
FOVEA_API fovea_status fovea_bundle_load(const char* path);

/* A bundle that is being written. The one handle that changes; its calls wait for one another. */
typedef struct fovea_bundle_s* fovea_bundle;

FOVEA_API fovea_status fovea_bundle_create(const char* path, fovea_bundle* bundle);
/* Compiles the problem for options->device, with every engine that can and that keeps plans in
 * files (or options->engine alone), and puts the plans in. The report (may be NULL) says which
 * engines, and whether their plans were built: "cudnn built". Nothing is run. */
FOVEA_API fovea_status fovea_bundle_add(fovea_bundle bundle, fovea_problem problem,
                                        const fovea_plan_options* options, fovea_report* report);
/* Puts in all plans of another file. */
FOVEA_API fovea_status fovea_bundle_merge(fovea_bundle bundle, const char* path);
/* Writes the file, whole or not at all. plans and bytes may be NULL. */
FOVEA_API fovea_status fovea_bundle_finish(fovea_bundle bundle, uint64_t* plans, uint64_t* bytes);
/* Without fovea_bundle_finish nothing is left behind. */
FOVEA_API void fovea_bundle_destroy(fovea_bundle bundle);

/* ---- in the cache folder, where processes find what others of this user compiled ---- */

/* Its path: FOVEA_CACHE_DIR, else the user's own; "" if there is none. */
FOVEA_API fovea_status fovea_disk_cache_folder(fovea_report* report);

typedef enum fovea_disk_cache_flags {
  FOVEA_DISK_CACHE_JSON = 1,
  FOVEA_DISK_CACHE_VERIFY = 2 /* read all of every file, and count those that are damaged */
} fovea_disk_cache_flags;

typedef struct fovea_disk_cache_info {
  size_t struct_size;
  int32_t usable, writable; /* are plans read from it, and written to it? */
  uint64_t plans, bytes;    /* in it now */
  uint64_t limit;           /* the most bytes: FOVEA_CACHE_LIMIT */
  uint64_t damaged;
} fovea_disk_cache_info;

/* What is in it, last used first, as a table or as JSON. info may be NULL. */
FOVEA_API fovea_status fovea_disk_cache_list(uint32_t flags, fovea_disk_cache_info* info,
                                             fovea_report* report);
/* Removes all of it. plans and bytes (may be NULL) get what was there. */
FOVEA_API fovea_status fovea_disk_cache_clear(uint64_t* plans, uint64_t* bytes);

#endif
