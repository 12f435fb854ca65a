// Writes struct Formula of device/formula.h, except its constants and classify. Values are named by
// their node: v7. A load whose indices belong to several stages has its address in parts: data7 in
// Uniform, at7 in Row and Column.
#pragma once

#include <string>
#include <vector>

#include "engines/jit/render_op.h"
#include "engines/jit/stages.h"
#include "engines/jit/words.h"
#include "ir/program.h"

namespace fovea::jit {

class FormulaText {
 public:
  FormulaText(const ir::Program& program, const Stages& stages, const WordLayout& layout,
              const FunctionAccuracy& functions)
      : program_(program), stages_(stages), layout_(layout), functions_(functions) {}

  void structs();
  void uniform();
  // make_row and row, or make_column and column. Gives the number of words.
  int positions(ir::Stage stage);
  // What is staged for each tile: make_diagonal, cells, pair and fill_pair.
  void tile_values();
  // `arguments`: what it has besides those of all functions, each with a comma before it.
  void function(const std::string& name, const std::string& arguments, const ir::Expr& root);

  std::string take() { return std::move(out_); }

 private:
  using Nodes = std::vector<const ir::Node*>;

  void line(const std::string& text) { out_ += "  " + text + "\n"; }
  void structure(const std::string& name, ir::Stage stage, const std::string& position);
  void pair_structure();
  void diagonal_functions();
  void cell_functions();
  void reads(const std::string& name, const ir::Node* root);
  void make_positions(ir::Stage stage, const Nodes& staged);
  void fields(const Nodes& nodes, const std::string& own, ir::Stage stage);
  void values(const Nodes& nodes, ir::Stage here);
  void declare(const ir::Node* node, ir::Stage here, const std::string& text);

  std::string value(const ir::Node* node, ir::Stage here, const FunctionAccuracy& functions) const;
  std::string scalar_text(const ir::Node* node) const;

  // Loads of later stages, some index of which belongs to this one; Uniform: all of them.
  Nodes addressed_in(ir::Stage stage) const;
  std::string captured_type(const ir::Node* load) const;
  std::string part_name(const ir::Node* load, ir::Stage stage) const;
  std::string data_text(const ir::Node* load) const;
  // `first` plus the offsets of the load's indices of one stage; "0" if there are none.
  std::string sum(std::string first, const ir::Node* load, ir::Stage of) const;
  std::string load_text(const ir::Node* load, ir::Stage here) const;

  const ir::Program& program_;
  const Stages& stages_;
  const WordLayout& layout_;
  const FunctionAccuracy functions_;
  std::string out_;
};

}  // namespace fovea::jit
