// `fovea explain`: every engine's verdict on a line, without running it.
#include <iostream>
#include <memory>

#include "handles.h"
#include "verb.h"
#include "verbs.h"

namespace fovea::cli {
namespace {

struct Options {
  std::string line, engine, device = "cpu";
  bool json = false, prove = false;
};

std::string explain(fovea_problem problem, const Options& options) {
  fovea_plan_options wanted{};
  wanted.struct_size = sizeof wanted;
  wanted.engine = options.engine.empty() ? nullptr : options.engine.c_str();
  wanted.device = options.device.c_str();
  std::uint32_t flags = 0;
  if (options.json) flags |= FOVEA_EXPLAIN_JSON;
  if (options.prove) flags |= FOVEA_EXPLAIN_PROVE;
  std::string text = text_of(fovea_explain, problem, &wanted, flags);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

void run(const Options& options) {
  fovea_problem first = nullptr, second = nullptr;
  check(fovea_problem_parse(options.line.c_str(), &first, &second));
  const Problem problem(first), backward(second);
  if (!backward) {
    std::cout << explain(problem.get(), options) << "\n";
  } else if (options.json) {
    std::cout << "{\"forward\": " << explain(problem.get(), options)
              << ",\n\"backward\": " << explain(backward.get(), options) << "}\n";
  } else {
    std::cout << "forward\n"
              << explain(problem.get(), options) << "\n\nbackward\n"
              << explain(backward.get(), options) << "\n";
  }
}

}  // namespace

void add_explain(CLI::App& program) {
  Verb verb(program, "explain",
            "Say which engine would run a problem line, and why the others cannot");
  const auto options = std::make_shared<Options>();
  verb.option("LINE", options->line, "A problem line: b=2 h=8 sq=256 mod=\"...\" ...").required();
  verb.option(
          "--device", options->device,
          "cpu, cuda:0, a known GPU that need not be here (a100, h200, b200), or a JSON description")
      .tell_default();
  verb.option("--engine", options->engine, "As if this engine had been asked for");
  verb.flag("--json", options->json, "For programs");
  verb.flag("--prove", options->prove, "Build plans to prove support");
  verb.footer(
      "Examples:\n"
      "  fovea explain 'b=2 h=8 sq=1024 dtype=bf16 mask=causal direction=both'\n"
      "  fovea explain 'sq=4096 d=320 dtype=bf16' --device h200 --json");
  verb.callback([options] { run(*options); });
}

}  // namespace fovea::cli
