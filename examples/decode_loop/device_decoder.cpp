// SPDX-License-Identifier: Apache-2.0
#include <decode_loop/device_decoder.hpp>
#include <decode_loop/token_step.hpp>

#include <reprise/runtime/client.hpp>
#include <reprise/runtime/graph_cache.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace decode_loop {

namespace {

using DeviceTensors = Tensors<reprise::Array<float>, reprise::Array<std::int32_t>>;

// The decoder's step on a device: launched anew each time, or captured and replayed. There is one
// graph for the first half of the positions and one for all, which sees all rows of the caches.
class DeviceStep {
public:
  DeviceStep(reprise::Client client, const Model& model, const Request& request, Mode mode,
             Pick pick_by)
      : client_(std::move(client)), config_(model.config), steps_(request.steps), mode_(mode),
        tensors_(make_tensors(client_, model, request.steps)) {
    client_.write(tensors_.token, request.prompt.first(1));
    if (pick_by == Pick::device) prompt_ = client_.create<TokenId>(request.prompt);
    // Captures are not part of the measure.
    if (mode == Mode::replay) {
      (void)graph_for(0);
      (void)graph_for(steps_ - 1);
    }
  }

  void run(std::uint32_t position) {
    if (mode_ == Mode::replay) {
      graph_for(position).replay();
    } else {
      launch_all(client_, steps_, tensors_);
    }
  }

  // The same for a token that the host has picked.
  void run(std::uint32_t position, TokenId token) {
    if (mode_ == Mode::replay) {
      const reprise::Graph graph = graph_for(position);
      graph.refresh("position", {static_cast<std::int32_t>(position)});
      graph.refresh("token", {token});
      graph.replay();
    } else {
      client_.write(tensors_.position, std::array{static_cast<std::int32_t>(position)});
      client_.write(tensors_.token, std::array{token});
      launch_all(client_, steps_, tensors_);
    }
  }

  const DeviceTensors& tensors() const { return tensors_; }

private:
  reprise::Graph graph_for(std::uint32_t position) {
    const std::uint32_t half = (steps_ + 1) / 2;
    const std::uint32_t positions = position < half ? half : steps_;
    return graphs_.get(positions, [&] {
      return client_.capture([&](reprise::Client& recording) {
        if (!prompt_) {
          recording.slot("position", tensors_.position);
          recording.slot("token", tensors_.token);
        }
        launch_all(recording, positions, first_positions(tensors_, config_, positions));
      });
    });
  }

  void launch_all(reprise::Client& client, std::uint32_t positions,
                  const DeviceTensors& tensors) const {
    const auto launch = [&client](const auto& op, std::uint32_t items, const auto&... arguments) {
      client.launch(op.kernel, reprise::grid_for(items, items), arguments...);
    };
    token_step(launch, config_, positions, tensors);
    if (prompt_) launch(pick, 1, tensors.logits, prompt_, tensors.position, tensors.token);
  }

  reprise::Client client_;
  ModelConfig config_;
  std::uint32_t steps_;
  Mode mode_;
  DeviceTensors tensors_;
  reprise::Array<TokenId> prompt_;  // What the picking kernel follows; empty if the host picks.
  reprise::GraphCache<std::uint32_t> graphs_{2};  // By how many positions they see.
};

// Token and position are refreshed before each step, and the logits are waited for after it.
void pick_on_host(reprise::Client& client, DeviceStep& step, const Request& request,
                  Decoded& decoded) {
  for (std::uint32_t position = 0; position < request.steps; ++position) {
    step.run(position, decoded.tokens.back());
    const std::vector<float> logits = client.read(step.tensors().logits);
    if (!decoded.append(request, likeliest({logits.data(), logits.size()}))) return;
  }
}

// The device feeds itself. While it runs a step, the client looks at the token of the one before.
void pick_on_device(reprise::Client& client, DeviceStep& step, const Request& request,
                    Decoded& decoded) {
  step.run(0);
  for (std::uint32_t done = 1; done <= request.steps; ++done) {
    auto picked = client.async_read(step.tensors().token);
    if (done < request.steps) step.run(done);
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
