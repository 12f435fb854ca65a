// The verbs of the program. Each adds itself to the command line and runs when it is given.
#pragma once

namespace CLI {
class App;
}

namespace fovea::cli {

// The work was done and its result is bad: exit 1, everything is said already.
struct Failed {};

void add_bench(CLI::App& program);
void add_cache(CLI::App& program);
void add_compile(CLI::App& program);
void add_diff(CLI::App& program);
void add_doctor(CLI::App& program);
void add_explain(CLI::App& program);
void add_run(CLI::App& program);
void add_show(CLI::App& program);

}  // namespace fovea::cli
