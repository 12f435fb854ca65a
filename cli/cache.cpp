// `fovea cache`: the plans that this user's processes keep on disk.
#include <iostream>
#include <memory>

#include "handles.h"
#include "spelling.h"
#include "table.h"
#include "verb.h"
#include "verbs.h"

namespace fovea::cli {
namespace {

struct Options {
  std::string what = "list";
  bool json = false;
};

std::string folder() { return text_of(fovea_disk_cache_folder); }

std::string size_text(std::uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::string plans_text(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " plan" : " plans");
}

// "3 plans, 512 KiB of at most 1 GiB in /home/me/.cache/fovea"
std::string where_text(const fovea_disk_cache_info& info) {
  const std::string bytes = size_text(info.bytes) + " of at most " + size_text(info.limit);
  std::string out = plans_text(info.plans) + ", " + bytes + " in " + folder();
  if (info.usable == 0) out += " (not in use: 'fovea doctor' says why)";
  if (info.usable != 0 && info.writable == 0) out += " (not written to: 'fovea doctor' says why)";
  return out;
}

void print(const Options& options, bool verify) {
  fovea_disk_cache_info info{};
  info.struct_size = sizeof info;
  std::uint32_t flags = verify ? FOVEA_DISK_CACHE_VERIFY : 0;
  if (options.json) flags |= FOVEA_DISK_CACHE_JSON;
  const std::string text = text_of(fovea_disk_cache_list, flags, &info);
  if (options.json || info.plans > 0) std::cout << text;
  if (!options.json && folder().empty()) {
    std::cout << "no plans are kept on disk: 'fovea doctor' says why\n";
  } else if (!options.json) {
    std::cout << where_text(info);
    if (verify) std::cout << "; " << info.damaged << " damaged";
    std::cout << "\n";
  }
  if (verify && info.damaged > 0) {
    std::cerr << "fovea: damaged files are never used, and replaced when their plan is next built;"
                 " 'fovea cache clear' removes everything\n";
    throw Failed{};
  }
}

void clear() {
  std::uint64_t plans = 0, bytes = 0;
  check(fovea_disk_cache_clear(&plans, &bytes));
  std::cout << "removed " << plans_text(plans) << ", " << size_text(bytes)
            << (folder().empty() ? "" : " from " + folder()) << "\n";
}

void run(const Options& options) {
  if (options.what == "list") return print(options, /*verify=*/false);
  if (options.what == "verify") return print(options, /*verify=*/true);
  if (options.what == "clear") return clear();
  if (options.what == "path") {
    std::cout << folder() << "\n";
    return;
  }
  throw std::invalid_argument("unknown argument '" + options.what + "' of cache" +
                              did_you_mean(options.what, {"list", "verify", "clear", "path"}));
}

}  // namespace

void add_cache(CLI::App& program) {
  Verb verb(program, "cache", "List, verify or clear the plans kept on disk");
  const auto options = std::make_shared<Options>();
  verb.option("WHAT", options->what, "list, verify, clear or path").tell_default();
  verb.flag("--json", options->json, "For programs: of list and verify");
  verb.footer(
      "Engines that can write their plans down keep them in a folder of this user, so that the next\n"
      "process starts in milliseconds. FOVEA_CACHE_DIR names another folder, or off;\n"
      "FOVEA_CACHE_LIMIT bounds it (500M, 2G): what was not used for longest goes first.\n"
      "Examples:\n"
      "  fovea cache                what is there, last used first\n"
      "  fovea cache verify         read all of it; exit 1 if a file is damaged\n"
      "  fovea cache clear          remove all of it: plans are built again when they are needed\n"
      "  du -sh $(fovea cache path)");
  verb.callback([options] { run(*options); });
}

}  // namespace fovea::cli
