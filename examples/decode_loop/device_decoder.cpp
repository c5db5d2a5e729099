// SPDX-License-Identifier: Apache-2.0
#include <decode_loop/device_decoder.hpp>
#include <decode_loop/token_step.hpp>

#include <reprise/runtime/client.hpp>

#include <array>
#include <chrono>
#include <utility>
#include <vector>

namespace decode_loop {

namespace {

using DeviceTensors = Tensors<reprise::Array<float>, reprise::Array<std::int32_t>>;

// The decoder's step on a device: launched anew each time, or captured once and replayed.
class DeviceStep {
public:
  DeviceStep(reprise::Client client, const Model& model, const Request& request, Mode mode,
             Pick pick_by)
      : client_(std::move(client)), config_(model.config), positions_(request.steps),
        tensors_(make_tensors(client_, model, request.steps)) {
    client_.write(tensors_.token, request.prompt.first(1));
    if (pick_by == Pick::device) prompt_ = client_.create<TokenId>(request.prompt);
    if (mode == Mode::replay) {
      graph_ = client_.capture([this](reprise::Client& recording) { launch_all(recording); });
    }
  }

  void run() {
    if (graph_) {
      graph_.replay();
    } else {
      launch_all(client_);
    }
  }

  const DeviceTensors& tensors() const { return tensors_; }

private:
  void launch_all(reprise::Client& client) const {
    const auto launch = [&client](const auto& op, std::uint32_t items, const auto&... arguments) {
      client.launch(op.kernel, reprise::grid_for(items, items), arguments...);
    };
    token_step(launch, config_, positions_, tensors_);
    if (prompt_) launch(pick, 1, tensors_.logits, prompt_, tensors_.position, tensors_.token);
  }

  reprise::Client client_;
  ModelConfig config_;
  std::uint32_t positions_;
  DeviceTensors tensors_;
  reprise::Array<TokenId> prompt_;  // What the picking kernel follows; empty if the host picks.
  reprise::Graph graph_;            // Empty if launches are submitted anew.
};

// Token and position are refreshed before each step, and the logits are waited for after it.
void pick_on_host(reprise::Client& client, DeviceStep& step, const Request& request,
                  Decoded& decoded) {
  const DeviceTensors& tensors = step.tensors();
  for (std::uint32_t position = 0; position < request.steps; ++position) {
    client.write(tensors.position, std::array{static_cast<std::int32_t>(position)});
    client.write(tensors.token, std::array{decoded.tokens.back()});
    step.run();
    const std::vector<float> logits = client.read(tensors.logits);
    if (!decoded.append(request, likeliest({logits.data(), logits.size()}))) return;
  }
}

// The device feeds itself. While it runs a step, the client looks at the token of the one before.
void pick_on_device(reprise::Client& client, DeviceStep& step, const Request& request,
                    Decoded& decoded) {
  step.run();
  for (std::uint32_t done = 1; done <= request.steps; ++done) {
    auto picked = client.async_read(step.tensors().token);
    if (done < request.steps) step.run();
    if (!decoded.append(request, picked.get()[0])) return;
  }
}

}  // namespace

Decoded decode(reprise::Client client, const Model& model, const Request& request, Mode mode,
               Pick pick_by) {
  check_request(model, request);
  DeviceStep step(client, model, request, mode, pick_by);
  Decoded decoded;
  decoded.tokens.push_back(request.prompt[0]);
  client.synchronize();  // Uploads are not part of the measure.
  const auto begin = std::chrono::steady_clock::now();
  if (pick_by == Pick::host) {
    pick_on_host(client, step, request, decoded);
  } else {
    pick_on_device(client, step, request, decoded);
  }
  decoded.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return decoded;
}

}  // namespace decode_loop
