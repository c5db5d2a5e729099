// SPDX-License-Identifier: Apache-2.0
// The shortest useful program: one kernel, one launch, one future.
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <iostream>
#include <string>
#include <vector>

const reprise::Kernel add_one{
    "add_one", [](reprise::Block block, reprise::In<float> in, reprise::Out<float> out) {
      for (std::size_t i : block.range(out.size())) out[i] = in[i] + 1;
    }};

int main(int argc, char** argv) {
  std::string name = "cpu:0";
  CLI::App app{"Adds one to some numbers, on a device."};
  app.add_option("--device", name, "Device to run on")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    reprise::Runtime runtime;
    const reprise::Client client = runtime.open(name).client();

    const auto x = client.create<float>({1, 2, 3, 4});
    const auto y = client.empty<float>(x.size());
    client.launch(add_one, reprise::grid_for(x.size()), x, y);  // Returns at once.
    reprise::Future<std::vector<float>> answer = client.async_read(y);

    for (const float value : answer.get()) std::cout << value << ' ';
    std::cout << std::endl;
  } catch (const reprise::Failure& failure) {
    std::cerr << "hello_device: " << failure.record() << '\n';
    return 1;
  }
  return 0;
}
