// SPDX-License-Identifier: Apache-2.0
#include "harness.hpp"

#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <string>
#include <vector>

using namespace reprise::bench;

namespace {

struct Choices {
  std::vector<std::string> rows;
  std::string json;
  int rounds = 9;
  int runs = 3;
  bool list = false;
  std::string loop;
  int loop_rounds = 1;
};

int run(const Choices& choices) {
  const Suite suite = Registration::all();
  if (!choices.loop.empty()) {
    const long operations = suite.loop(choices.loop, choices.loop_rounds);
    // On a line of its own, even where a tool has just begun one on the same pipe.
    std::cout << "\noperations " << operations << '\n';
    return operations < 0 ? 1 : 0;
  }
  const auto rows = suite.select(choices.rows);
  if (rows.empty()) {
    std::cerr << "no such row\n";
    return 2;
  }
  if (choices.list) {
    for (const Row* row : rows) std::cout << row->id() << "  " << row->column() << '\n';
    return 0;
  }
  std::ofstream json;
  if (!choices.json.empty()) {
    json.open(choices.json);
    if (!json) {
      std::cerr << "cannot write " << choices.json << '\n';
      return 2;
    }
  }
  int missed = 0;
  int bars = 0;
  for (const Row* row : rows) {
    const std::vector<Cell> cells = row->run(choices.rounds, choices.runs, std::cerr);
    print(std::cout, cells);
    for (const Cell& cell : cells) {
      if (json.is_open()) json << cell.json() << '\n' << std::flush;
      for (const Cell::Verdict& verdict : cell.verdicts) {
        ++bars;
        if (!verdict.pass) ++missed;
      }
    }
  }
  std::cout << '\n' << bars - missed << " bars reached, " << missed << " missed\n";
  return missed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Choices choices;
  CLI::App app("Measures rows of the performance programme; exits 1 when a bar is missed.");
  app.add_option("rows", choices.rows, "Rows to measure, P1 and so on; all when none is named");
  app.add_option("--json", choices.json, "Write one JSON line per cell to this file");
  app.add_option("--rounds", choices.rounds, "Rounds in which the variants take turns")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--runs", choices.runs, "How often a row may try for its bars; the best counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--list", choices.list, "List the rows and leave");
  app.add_option("--loop", choices.loop)->group("");
  app.add_option("--loop-rounds", choices.loop_rounds)->group("");
  CLI11_PARSE(app, argc, argv);
  return run(choices);
}
