#include "capi/caching.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "capi/arguments.h"
#include "capi/problem.h"
#include "capi/report.h"
#include "planner/cache.h"
#include "planner/planner.h"
#include "store/disk.h"
#include "store/plan_store.h"

using namespace fovea;
using namespace fovea::capi;

fovea_status fovea_cache_statistics(fovea_cache_stats* stats) {
  return guarded([&] {
    const CacheStatistics now = planner().cache().statistics();
    const store::Statistics stored = store::plan_store().statistics();
    fovea_cache_stats filled{};
    filled.hits = now.hits;
    filled.misses = now.misses;
    filled.builds = now.builds;
    filled.evictions = now.evictions;
    filled.plans = now.plans;
    filled.bytes = now.bytes;
    filled.build_seconds = now.build_seconds;
    filled.disk_hits = stored.disk_hits;
    filled.bundle_hits = stored.bundle_hits;
    filled.disk_writes = stored.disk_writes;
    constexpr std::size_t first_size = offsetof(fovea_cache_stats, disk_hits);
    write_struct(stats, filled, {"stats", "fovea_cache_stats"}, first_size);
  });
}

fovea_status fovea_cache_clear() {
  return guarded([] { planner().cache().clear(); });
}

fovea_status fovea_cache_limit(uint64_t plans, uint64_t bytes) {
  return guarded([&] { planner().cache().limit(plans, bytes); });
}

namespace {

using store::Listed;
using store::Listing;

std::string kilobytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f KiB", static_cast<double>(bytes) / 1024);
  return text;
}

double age_of(const Listed& one) {
  return std::max(
      0.0, static_cast<double>(std::time(nullptr)) - static_cast<double>(one.file.used) * 1e-9);
}

std::string age_text(double seconds) {
  struct Unit {
    double seconds;
    const char* name;
  };
  constexpr Unit units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}};
  for (const Unit& unit : units) {
    if (seconds < unit.seconds) continue;
    return std::to_string(static_cast<long>(seconds / unit.seconds)) + " " + unit.name;
  }
  return std::to_string(static_cast<long>(seconds)) + " s";
}

// Keys are texts of engines; a damaged one may be anything.
std::string printable(std::string text) {
  std::ranges::replace_if(text, [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  return text;
}

std::vector<std::string> row_of(const Listed& one) {
  const std::string what = one.damage.empty() ? printable(summary_of(one.key))
                                              : "damaged: " + one.file.name + " " + one.damage;
  return {printable(one.key.engine), kilobytes(one.file.bytes), age_text(age_of(one)),
          printable(one.key.environment), what};
}

std::string to_table(const Listing& listing) {
  std::vector<std::vector<std::string>> rows{
      {"engine", "size", "used ago", "environment", "problem"}};
  for (const Listed& one : listing.files) rows.push_back(row_of(one));
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      out += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    out += row.back() + "\n";
  }
  return out;
}

std::string to_json(const Listing& listing) {
  nlohmann::ordered_json plans = nlohmann::ordered_json::array();
  for (const Listed& one : listing.files) {
    plans.push_back({{"file", one.file.name},
                     {"engine", one.key.engine},
                     {"environment", one.key.environment},
                     {"problem", summary_of(one.key)},
                     {"bytes", one.file.bytes},
                     {"used_seconds_ago", age_of(one)},
                     {"damage", one.damage}});
  }
  const nlohmann::ordered_json out{{"folder", store::plan_store().disk().choice().path},
                                   {"usable", listing.usable},
                                   {"writable", listing.writable},
                                   {"why", listing.why},
                                   {"bytes", listing.bytes},
                                   {"limit", store::plan_store().disk().limit()},
                                   {"plans", std::move(plans)}};
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::uint64_t count_damaged(const Listing& listing) {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(listing.files, [](const Listed& one) { return !one.damage.empty(); }));
}

}  // namespace

fovea_status fovea_disk_cache_folder(fovea_report* report) {
  return report_text(report, "report", [] { return store::plan_store().disk().choice().path; });
}

fovea_status fovea_disk_cache_list(uint32_t flags, fovea_disk_cache_info* info,
                                   fovea_report* report) {
  return report_text(report, "report", [&] {
    if (info != nullptr) clear_struct(info, {"info", "fovea_disk_cache_info"});
    check_flags(flags, FOVEA_DISK_CACHE_JSON | FOVEA_DISK_CACHE_VERIFY,
                "FOVEA_DISK_CACHE_JSON (1) and FOVEA_DISK_CACHE_VERIFY (2)");
    const store::Disk& disk = store::plan_store().disk();
    const Listing listing = store::list(disk, (flags & FOVEA_DISK_CACHE_VERIFY) != 0);
    if (info != nullptr) {
      info->usable = listing.usable || listing.missing;
      info->writable = listing.writable || listing.missing;
      info->plans = listing.files.size();
      info->bytes = listing.bytes;
      info->limit = disk.limit();
      info->damaged = count_damaged(listing);
    }
    return (flags & FOVEA_DISK_CACHE_JSON) != 0 ? to_json(listing) : to_table(listing);
  });
}

fovea_status fovea_disk_cache_clear(uint64_t* plans, uint64_t* bytes) {
  return guarded([&] {
    const store::Removed removed = store::clear(store::plan_store().disk());
    if (plans != nullptr) *plans = removed.files;
    if (bytes != nullptr) *bytes = removed.bytes;
  });
}

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
    store::plan_store().load(std::move(bundle));
  });
}

fovea_status fovea_bundle_create(const char* path, fovea_bundle* bundle) {
  return create(bundle, "bundle", [&] {
    need(path, "path");
    if (*path == '\0') throw InvalidArgument("path is empty; it must name a file");
    return new fovea_bundle_s(path);
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

namespace {

void add_memory(Sheet& sheet) {
  const CacheStatistics now = planner().cache().statistics();
  sheet.row("plan cache", std::to_string(now.plans) + " plans, " + std::to_string(now.bytes) +
                              " bytes in this process (" + std::to_string(now.hits) + " hits, " +
                              std::to_string(now.builds) + " built)");
}

void add_folder(Sheet& sheet) {
  const store::Disk& disk = store::plan_store().disk();
  const store::Listing listing = store::summarise(disk);
  if (!disk.is_on()) return sheet.row("cache folder", "none: " + listing.why);
  sheet.row("cache folder", disk.choice().path);
  sheet.more(std::to_string(listing.files.size()) + " plans, " + std::to_string(listing.bytes) +
             " bytes of at most " + std::to_string(disk.limit()) + " (FOVEA_CACHE_LIMIT chooses)");
  if (listing.usable && listing.writable) {
    sheet.more("usable");
  } else if (listing.usable) {
    sheet.more("plans in it are used, new ones are not kept: it " + listing.why);
  } else if (listing.missing) {
    sheet.more("is not there yet: made with the first plan that is kept");
  } else {
    sheet.more("not used: it " + listing.why);
  }
  const std::string& bad = store::plan_store().settings().bad_limit;
  if (!bad.empty()) {
    sheet.more("FOVEA_CACHE_LIMIT=" + bad + " is no size (500M, 2G, 65536): ignored");
  }
}

void add_bundles(Sheet& sheet) {
  bool any = false;
  const auto add = [&](const std::string& text) {
    sheet.row(std::exchange(any, true) ? "" : "bundles", text);
  };
  for (const store::NamedBundle& named : store::plan_store().named_bundles()) {
    if (!named.bundle) {
      add("not used: " + named.refusal);
      continue;
    }
    for (const store::Bundle::Section& section : named.bundle->sections()) {
      const std::string refusal = planner().refuse_stored(section.engine, section.environment);
      const std::string plans = std::to_string(section.entries) + " plans of " + section.engine;
      add(named.path + ": " + plans +
          (refusal.empty() ? " for " + section.environment : ", not used: " + refusal));
    }
    if (named.bundle->sections().empty()) add(named.path + ": no plans");
  }
}

}  // namespace

void fovea::capi::add_caches(Sheet& sheet) {
  add_memory(sheet);
  add_folder(sheet);
  add_bundles(sheet);
}
