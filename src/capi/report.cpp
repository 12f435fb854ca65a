#include "capi/report.h"

#include <exception>
#include <new>
#include <string>

#include "attention/cpu.h"
#include "attention/device.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/words.h"
#include "cuda/driver.h"
#include "cuda/libraries.h"
#include "cuda/nvrtc.h"
#include "engines/cudnn/graph.h"
#include "planner/planner.h"
#include "store/disk.h"
#include "store/plan_store.h"

namespace fovea::capi {
namespace {

// The text of this thread's last failure. Memory may be what failed, so there is a text that needs
// none.
struct LastError {
  std::string text;
  const char* shown = "";
};
thread_local LastError last_error;

fovea_status fail(fovea_status status, const char* text) noexcept {
  try {
    last_error.text = text;
    last_error.shown = last_error.text.c_str();
  } catch (...) {
    last_error.shown = "out of memory, also for the text of the error";
  }
  return status;
}

}  // namespace

fovea_status status_of_current_exception() noexcept {
  try {
    throw;
  } catch (const InvalidArgument& e) {
    return fail(FOVEA_INVALID_ARGUMENT, e.what());
  } catch (const Unsupported& e) {
    return fail(FOVEA_UNSUPPORTED, e.what());
  } catch (const DeviceError& e) {
    return fail(FOVEA_DEVICE_ERROR, e.what());
  } catch (const InternalError& e) {
    return fail(FOVEA_INTERNAL_ERROR, e.what());
  } catch (const std::bad_alloc&) {
    return fail(FOVEA_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    try {
      return fail(FOVEA_INTERNAL_ERROR, InternalError(e.what()).what());
    } catch (...) {
      return fail(FOVEA_INTERNAL_ERROR, e.what());
    }
  } catch (...) {
    return fail(FOVEA_INTERNAL_ERROR,
                "internal error in Fovea (please report it): an exception of an unknown type");
  }
}

}  // namespace fovea::capi

const char* fovea_last_error() { return fovea::capi::last_error.shown; }

const char* fovea_status_name(fovea_status status) {
  switch (static_cast<int>(status)) {
    case FOVEA_OK: return "FOVEA_OK";
    case FOVEA_INVALID_ARGUMENT: return "FOVEA_INVALID_ARGUMENT";
    case FOVEA_UNSUPPORTED: return "FOVEA_UNSUPPORTED";
    case FOVEA_DEVICE_ERROR: return "FOVEA_DEVICE_ERROR";
    case FOVEA_OUT_OF_MEMORY: return "FOVEA_OUT_OF_MEMORY";
    case FOVEA_INTERNAL_ERROR: return "FOVEA_INTERNAL_ERROR";
  }
  return "unknown status";
}

const char* fovea_report_text(fovea_report report) {
  return report == nullptr ? "" : report->text.c_str();
}

void fovea_report_destroy(fovea_report report) { delete report; }

void fovea_set_log(void (*log)(void* context, const char* line), void* context) {
  fovea::set_log(log, context);
}

#define FOVEA_TEXT(x) #x
#define FOVEA_DOTTED(a, b, c) FOVEA_TEXT(a) "." FOVEA_TEXT(b) "." FOVEA_TEXT(c)

const char* fovea_version() {
  return FOVEA_DOTTED(FOVEA_VERSION_MAJOR, FOVEA_VERSION_MINOR, FOVEA_VERSION_PATCH);
}

using namespace fovea;
using namespace fovea::capi;

namespace {

// `label     text`, further lines under the first.
class Sheet {
 public:
  void row(std::string label, const std::string& text) {
    constexpr std::size_t width = 14;
    label.resize(std::max(width, label.size() + 2), ' ');
    text_ += label + text + "\n";
  }
  void more(const std::string& text) { row("", text); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string counted(std::size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string compiler() {
#if defined(__clang__)
  return std::string("clang ") + __clang_version__;
#elif defined(__GNUC__)
  return std::string("gcc ") + __VERSION__;
#else
  return "unknown compiler";
#endif
}

void add_cpu(Sheet& sheet) {
  const Device& cpu = cpu_device();
  sheet.row("cpu", cpu.name);
  sheet.more("instructions: " + joined(cpu.isa) + " (FOVEA_CPU_ISA chooses)");
  const Cpus cpus = process_cpus().all;
  const int nodes = memory_nodes(cpus).count;
  sheet.more("threads: " + std::to_string(cpu.threads) + " (FOVEA_NUM_THREADS chooses) on " +
             counted(cpus.size(), "processor") + " of " +
             counted(static_cast<std::size_t>(nodes), "memory node") + " (NUMA)");
  if (cpu.isa.size() == 1) {
    sheet.more("no vector instructions that Fovea uses: expect slow attention on this CPU");
  }
}

void add_engines(Sheet& sheet) {
  sheet.row("engines", joined(planner().engine_names()));
  sheet.more("reference runs only when it is named (engine=reference or FOVEA_ENGINE=reference)");
}

void add_cuda(Sheet& sheet) {
  const int count = cuda::device_count();
  if (cuda::driver() == nullptr) {
    sheet.row("cuda", cuda::driver_problem());
    sheet.more("to see what would run on a GPU, explain for a described one: " +
               joined(built_in_devices()) + ", or a JSON file");
  } else if (count == 0) {
    sheet.row("cuda", "an NVIDIA driver, but no GPU that it lets this process use");
  }
  for (int i = 0; i < count; ++i) {
    const Device gpu = cuda::find_device("cuda:" + std::to_string(i));
    sheet.row(i == 0 ? "cuda" : "", "cuda:" + std::to_string(i) + " " + gpu.name + ", sm_" +
                                        std::to_string(gpu.sm) + ", " +
                                        std::to_string(gpu.memory_bytes >> 30) + " GiB");
  }
}

void add_cudnn(Sheet& sheet) {
  if (!cudnn::graphs_are_built_in()) {
    sheet.row("cudnn",
              "not part of this Fovea: it was built without the headers of cudnn-frontend");
    return;
  }
  const cuda::CudnnLibrary& library = cuda::cudnn_library();
  if (library.library == nullptr) {
    sheet.row("cudnn", library.problem);
    return;
  }
  sheet.row("cudnn", cuda::version_text(library.version) + " from " + library.path +
                         " (FOVEA_CUDNN_DIR chooses), graphs by cudnn-frontend " +
                         cudnn::frontend_version());
  if (!library.problem.empty()) sheet.more(library.problem);
  const std::vector<std::string> folders = cuda::cudnn_folders_in_use();
  if (folders.size() > 1) {
    sheet.more("its parts are loaded from several folders, which may crash: " + joined(folders));
  }
}

// What engine jit compiles with.
void add_nvrtc(Sheet& sheet) {
  const cuda::NvrtcLibrary& library = cuda::nvrtc_library();
  if (!library.usable()) {
    sheet.row("nvrtc", library.problem);
    sheet.more("engine jit then runs what is stored in bundles or on disk only");
    return;
  }
  sheet.row("nvrtc", library.version + " from " + library.path);
}

void add_cache(Sheet& sheet) {
  const CacheStatistics now = planner().cache().statistics();
  sheet.row("plan cache", std::to_string(now.plans) + " plans, " + std::to_string(now.bytes) +
                              " bytes in this process (" + std::to_string(now.hits) + " hits, " +
                              std::to_string(now.builds) + " built)");
}

// Where plans are kept for other processes, and whether they can be.
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

void add_environment(Sheet& sheet) {
  bool any = false;
  for (const EnvVariable& variable : environment_variables()) {
    const auto value = env_value(variable.variable);
    if (!value) continue;
    sheet.row(any ? "" : "environment",
              std::string(variable.name) + "=" + *value + "  (" + variable.meaning + ")");
    any = true;
  }
  if (!any) sheet.row("environment", "no FOVEA_ variable is set");
}

}  // namespace

fovea_status fovea_doctor(fovea_report* report) {
  return report_text(report, "report", [&] {
    Sheet sheet;
    sheet.row("fovea", std::string(fovea_version()) + ", built with " + compiler());
    add_cpu(sheet);
    add_engines(sheet);
    add_cuda(sheet);
    add_cudnn(sheet);
    add_nvrtc(sheet);
    add_cache(sheet);
    add_folder(sheet);
    add_bundles(sheet);
    add_environment(sheet);
    return sheet.text();
  });
}
