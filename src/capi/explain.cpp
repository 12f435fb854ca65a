#include "capi/explain.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "attention/cpu.h"
#include "attention/device.h"
#include "attention/parallel.h"
#include "attention/rules.h"
#include "base/env.h"
#include "base/error.h"
#include "base/words.h"
#include "capi/caching.h"
#include "capi/call.h"
#include "capi/captured.h"
#include "capi/problem.h"
#include "capi/report.h"
#include "cuda/driver.h"
#include "cuda/libraries.h"
#include "cuda/nvrtc.h"
#include "engines/cudnn/graph.h"
#include "planner/planner.h"

using namespace fovea;
using namespace fovea::capi;

namespace {

fovea_answer to_answer(const Explanation& explanation) {
  if (explanation.chosen.empty()) return FOVEA_NO;
  switch (explanation.find(explanation.chosen)->verdict.answer) {
    case Answer::Proven: return FOVEA_PROVEN;
    case Answer::Expected: return FOVEA_EXPECTED;
    case Answer::No: return FOVEA_NO;
  }
  throw InternalError("a verdict of no kind");
}

}  // namespace

fovea_status fovea_supported(fovea_problem problem, const fovea_plan_options* options,
                             fovea_answer* answer, fovea_report* report) {
  return guarded([&] {
    if (report != nullptr) *report = nullptr;
    const fovea_problem_s& asked = content(problem, "problem");
    need(answer, "answer");
    const auto explanation =
        planner().explain(*asked.problem, to_request(to_words(asked, options)), /*prove=*/false);
    if (report != nullptr) {
      *report = new_report(explanation->chosen.empty() ? refusal_text(*explanation)
                                                       : explanation->chosen);
    }
    *answer = to_answer(*explanation);
  });
}

fovea_status fovea_explain(fovea_problem problem, const fovea_plan_options* options, uint32_t flags,
                           fovea_report* report) {
  return report_text(report, "report", [&] {
    const fovea_problem_s& asked = content(problem, "problem");
    check_flags(flags, FOVEA_EXPLAIN_JSON | FOVEA_EXPLAIN_PROVE,
                "FOVEA_EXPLAIN_JSON (1) and FOVEA_EXPLAIN_PROVE (2)");
    const PlanRequest request = to_request(to_words(asked, options));
    const auto explanation =
        planner().explain(*asked.problem, request, (flags & FOVEA_EXPLAIN_PROVE) != 0);
    return (flags & FOVEA_EXPLAIN_JSON) != 0 ? to_json(*asked.problem, request, *explanation)
                                             : to_table(*asked.problem, request, *explanation);
  });
}

const char* fovea_engines() {
  static const std::string& names = *new std::string([] {
    std::string out;
    for (const std::string& name : planner().engine_names()) out += (out.empty() ? "" : " ") + name;
    return out;
  }());
  return names.c_str();
}

// ---- over many ranks ----

namespace {

std::string text_or(const char* text, const char* otherwise) {
  return text == nullptr ? otherwise : text;
}

ParallelSpec to_spec(const fovea_parallel_config& config) {
  return {config.ranks, strategy_of(text_or(config.strategy, "ring")),
          order_of(text_or(config.order, "contiguous")), config.head_ranks};
}

// A scalar that is not bound here has its default, or is not known.
std::vector<std::optional<ir::ScalarValue>> scalars_of(const ir::Program& program,
                                                       const fovea_bindings& values) {
  std::vector<std::optional<ir::ScalarValue>> out(program.scalars().size());
  for (std::size_t i = 0; i < values.scalar_count; ++i) {
    const fovea_scalar_binding& bound = values.scalars[i];
    for (std::size_t slot = 0; slot < out.size(); ++slot) {
      if (bound.name == nullptr || program.scalars()[slot].name != bound.name) continue;
      out[slot] = ir::ScalarValue{static_cast<float>(bound.value), 0, 0};
      if (program.scalars()[slot].type == ir::Type::I32) {
        out[slot] = ir::ScalarValue{0, static_cast<std::int32_t>(bound.value), 0};
      }
    }
  }
  return out;
}

SequenceValues side_of(const Sequences::Names& names, std::int64_t count,
                       const std::int32_t* lengths, const std::int32_t* starts) {
  const auto n = static_cast<std::size_t>(count);
  Sequences all{names, {}, {}, {}, most_positions, 0};
  if (lengths != nullptr) all.lengths = {lengths, n};
  if (starts != nullptr) all.starts = {starts, n + 1};
  if (starts != nullptr) all.rows = starts[n];
  check_sequences(all);
  return {all.starts, all.lengths};
}

}  // namespace

fovea_status fovea_parallel_plan(fovea_problem problem, const fovea_parallel_config* config,
                                 const fovea_bindings* values, uint32_t flags,
                                 fovea_report* report) {
  return report_text(report, "report", [&] {
    const Problem& whole = *content(problem, "problem").problem;
    const auto known = read_struct(config, {"config", "fovea_parallel_config"});
    fovea_bindings given{};
    if (values != nullptr)
      given = read_struct(values, {"values", "fovea_bindings"}, first_bindings_size);
    const CapturedBindings captured(whole.program,
                                    {.argument = "values",
                                     .tensors = given.tensors,
                                     .tensor_count = given.tensor_count,
                                     .may_lack = true},
                                    {whole.sizes, whole.h_global});
    const auto scalars = scalars_of(whole.program, given);
    ParallelValues bound;
    bound.q = side_of({"values.q_lengths", "values.q_starts", "", "sq", "rows"}, whole.sizes.b,
                      given.q_lengths, given.q_starts);
    bound.k = side_of({"values.k_lengths", "values.k_starts", "", "skv", "rows"}, whole.sizes.b,
                      given.k_lengths, given.k_starts);
    bound.tensors = captured.tensors();
    bound.scalars = scalars;
    ParallelPlan plan(whole, bound, to_spec(known));
    if (known.rank < 0 || known.rank >= known.ranks) {
      throw InvalidArgument("config.rank is " + std::to_string(known.rank) +
                            "; it must be less than ranks, " + std::to_string(known.ranks));
    }
    check_flags(flags, FOVEA_EXPLAIN_JSON, "FOVEA_EXPLAIN_JSON (1)");
    return (flags & FOVEA_EXPLAIN_JSON) != 0 ? to_json(plan, known.rank) : to_table(plan);
  });
}

// ---- this machine ----

namespace {

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

void add_environment(Sheet& sheet) {
  constexpr std::size_t longest_name = 17;
  for (const EnvVariable& variable : environment_variables()) {
    const auto value = env_value(variable.variable);
    std::string setting = variable.name + (value ? "=" + *value : "");
    setting.resize(std::max(setting.size(), longest_name), ' ');
    const bool first = &variable == environment_variables().data();
    sheet.row(first ? "environment" : "", setting + "  " + variable.meaning);
  }
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
    add_caches(sheet);
    add_environment(sheet);
    return sheet.text();
  });
}
