// `fovea doctor` and `fovea cache`: what the library says about this machine and about itself.
// `fovea compile` is known by name only.
#include <iostream>
#include <memory>

#include "handles.h"
#include "spelling.h"
#include "table.h"
#include "verbs.h"

namespace fovea::cli {
namespace {

void print_doctor() {
  const std::string text = text_of(fovea_doctor);
  std::cout << text << (text.ends_with('\n') ? "" : "\n");
}

void print_statistics() {
  fovea_cache_stats stats{};
  stats.struct_size = sizeof stats;
  check(fovea_cache_statistics(&stats));
  Table table({"plans", "bytes", "hits", "misses", "builds", "evictions", "build time"});
  table.add({std::to_string(stats.plans), std::to_string(stats.bytes), std::to_string(stats.hits),
             std::to_string(stats.misses), std::to_string(stats.builds),
             std::to_string(stats.evictions), time_text(stats.build_seconds)});
  std::cout << table.text()
            << "Plans live in the process that built them: this one has just started. Fovea "
            << fovea_version() << " keeps none on disk.\n";
}

void run_cache(const std::string& what) {
  if (what == "stats") return print_statistics();
  if (what == "clear") {
    check(fovea_cache_clear());
    std::cout << "the cache of this process is empty; there is none on disk\n";
    return;
  }
  throw std::invalid_argument("unknown argument '" + what + "' of cache" +
                              did_you_mean(what, {"stats", "clear"}));
}

}  // namespace

void add_doctor(CLI::App& program) {
  CLI::App* verb =
      program.add_subcommand("doctor", "Say what was found on this machine and what was not");
  verb->footer("Example:\n  fovea doctor");
  verb->callback(print_doctor);
}

void add_cache(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("cache", "Show or clear the cache of plans");
  const auto what = std::make_shared<std::string>("stats");
  verb->add_option("WHAT", *what, "stats or clear")->capture_default_str();
  verb->footer("Examples:\n  fovea cache stats\n  fovea cache clear");
  verb->callback([what] { run_cache(*what); });
}

void add_compile(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("compile", "Write plans ahead (not in this version)");
  verb->allow_extras();
  verb->callback([] {
    throw std::invalid_argument("compile: version " + std::string(fovea_version()) +
                                " writes no plans ahead; they are built at their first use");
  });
}

}  // namespace fovea::cli
