// The cache folder as people see it: a table or JSON.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "store/listing.h"
#include "store/shelf.h"

using namespace fovea;
using namespace fovea::capi;

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
  const nlohmann::ordered_json out{{"folder", store::shelf().disk().choice().path},
                                   {"usable", listing.usable},
                                   {"writable", listing.writable},
                                   {"why", listing.why},
                                   {"bytes", listing.bytes},
                                   {"limit", store::shelf().disk().limit()},
                                   {"plans", std::move(plans)}};
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::uint64_t count_damaged(const Listing& listing) {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(listing.files, [](const Listed& one) { return !one.damage.empty(); }));
}

}  // namespace

fovea_status fovea_disk_cache_folder(fovea_report* report) {
  return guarded([&] {
    need(report, "report");
    *report = nullptr;
    *report = new_report(store::shelf().disk().choice().path);
  });
}

fovea_status fovea_disk_cache_list(uint32_t flags, fovea_disk_cache_info* info,
                                   fovea_report* report) {
  return guarded([&] {
    need(report, "report");
    *report = nullptr;
    if (info != nullptr) clear_struct(info, {"info", "fovea_disk_cache_info"});
    constexpr std::uint32_t known = FOVEA_DISK_CACHE_JSON | FOVEA_DISK_CACHE_VERIFY;
    if ((flags & ~known) != 0) {
      throw InvalidArgument(
          "flags is " + std::to_string(flags) +
          "; it may have FOVEA_DISK_CACHE_JSON (1) and FOVEA_DISK_CACHE_VERIFY (2)");
    }
    const store::Disk& disk = store::shelf().disk();
    const Listing listing = store::list(disk, (flags & FOVEA_DISK_CACHE_VERIFY) != 0);
    if (info != nullptr) {
      info->usable = listing.usable || listing.missing;
      info->writable = listing.writable || listing.missing;
      info->plans = listing.files.size();
      info->bytes = listing.bytes;
      info->limit = disk.limit();
      info->damaged = count_damaged(listing);
    }
    *report =
        new_report((flags & FOVEA_DISK_CACHE_JSON) != 0 ? to_json(listing) : to_table(listing));
  });
}

fovea_status fovea_disk_cache_clear(uint64_t* plans, uint64_t* bytes) {
  return guarded([&] {
    const store::Removed removed = store::clear(store::shelf().disk());
    if (plans != nullptr) *plans = removed.files;
    if (bytes != nullptr) *bytes = removed.bytes;
  });
}
