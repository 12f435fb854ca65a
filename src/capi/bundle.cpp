// Bundles: files of plans that were compiled ahead.
#include "store/bundle.h"

#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/plan_request.h"
#include "store/bundle_writer.h"
#include "store/shelf.h"

using namespace fovea;
using namespace fovea::capi;

struct fovea_bundle_s {
  explicit fovea_bundle_s(const std::string& path) : writer(path) {}
  std::mutex mutex;
  store::BundleWriter writer;
};

namespace {

// A bundle is of use if any of its parts is.
void check_fits(const store::Bundle& bundle) {
  std::string refusals;
  for (const store::Bundle::Section& section : bundle.sections()) {
    const std::string refusal = planner().refuse_stored(section.engine, section.environment);
    if (refusal.empty()) return;
    refusals += (refusals.empty() ? "" : "; ") + refusal;
  }
  if (!refusals.empty()) throw Unsupported(bundle.path() + ": " + refusals);
}

const char* origin_text(const std::vector<store::Recorded>& blobs) {
  bool bundle = false;
  for (const store::Recorded& blob : blobs) {
    if (blob.origin == store::Origin::Built) return " built";
    bundle |= blob.origin == store::Origin::Bundle;
  }
  return bundle ? " from a bundle" : " from disk";
}

}  // namespace

fovea_status fovea_bundle_load(const char* path) {
  return guarded([&] {
    need(path, "path");
    auto bundle = std::make_shared<const store::Bundle>(store::Bundle::open(path));
    check_fits(*bundle);
    store::shelf().load(std::move(bundle));
  });
}

fovea_status fovea_bundle_create(const char* path, fovea_bundle* bundle) {
  return guarded([&] {
    need(bundle, "bundle");
    *bundle = nullptr;
    need(path, "path");
    if (*path == '\0') throw InvalidArgument("path is empty; it must name a file");
    *bundle = new fovea_bundle_s(path);
  });
}

fovea_status fovea_bundle_add(fovea_bundle bundle, fovea_problem problem,
                              const fovea_plan_options* options, fovea_report* report) {
  return guarded([&] {
    if (report != nullptr) *report = nullptr;
    fovea_bundle_s& into = content(bundle, "bundle");
    const fovea_problem_s& asked = content(problem, "problem");
    std::string text;
    const auto compiled =
        planner().compile_ahead(*asked.problem, to_request(to_words(asked, options)));
    const std::lock_guard lock(into.mutex);
    for (const CompiledAhead& one : compiled) {
      for (const store::Recorded& blob : one.blobs) into.writer.add(blob.key, blob.blob);
      text += (text.empty() ? "" : ", ") + one.engine + origin_text(one.blobs);
    }
    if (report != nullptr) *report = new_report(std::move(text));
  });
}

fovea_status fovea_bundle_merge(fovea_bundle bundle, const char* path) {
  return guarded([&] {
    fovea_bundle_s& into = content(bundle, "bundle");
    need(path, "path");
    const store::Bundle other = store::Bundle::open(path);
    const std::lock_guard lock(into.mutex);
    into.writer.add(other);
  });
}

fovea_status fovea_bundle_finish(fovea_bundle bundle, uint64_t* plans, uint64_t* bytes) {
  return guarded([&] {
    fovea_bundle_s& finished = content(bundle, "bundle");
    const std::lock_guard lock(finished.mutex);
    finished.writer.finish(std::string("fovea ") + fovea_version());
    if (plans != nullptr) *plans = finished.writer.entries();
    if (bytes != nullptr) *bytes = finished.writer.file_bytes();
  });
}

void fovea_bundle_destroy(fovea_bundle bundle) { delete bundle; }
