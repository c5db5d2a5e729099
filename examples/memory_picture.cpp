// SPDX-License-Identifier: Apache-2.0
// Draws the memory of a device in the middle of some work: graphs that guard their buffers, a hole,
// a large table, memory that nothing wrote, and the output of a launch that failed.
#include <memory_picture/scene.hpp>

#include <support/svg_plot.hpp>

#include <reprise/memory/error.hpp>
#include <reprise/memory/report.hpp>
#include <reprise/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <exception>
#include <iostream>
#include <string>

namespace {

struct Options {
  std::string device = "cpu:0";
  std::string output = "out/memory_picture.svg";
};

void run(const Options& options) {
  examples::ensure_writable(options.output);
  reprise::Runtime runtime;
  const reprise::Device device = runtime.open(options.device);
  {
    const memory_picture::Scene scene(device);
    std::cout << device.memory_report();
    examples::write_text(options.output, device.memory_picture());
  }
  std::cout << "picture: " << options.output << std::endl;
  if (!std::cout) {
    throw reprise::Failure(reprise::Errc::io_error, "memory_picture",
                           "standard output: the report cannot be written");
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Draws the memory of a device in the middle of some work."};
  app.add_option("--device", options.device, "Device to run on")->capture_default_str();
  app.add_option("--output", options.output, "SVG file that the picture goes to")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
    run(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  } catch (const reprise::Failure& failure) {
    std::cerr << "memory_picture: " << failure.record() << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "memory_picture: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
