// SPDX-FileCopyrightText: 2026 hybridstate contributors
// SPDX-License-Identifier: Apache-2.0
#include "trace/session.hpp"

namespace hybridstate::runtime {

TraceSession::TraceSession(const RunSpec& spec, Tokens block_tokens, Tokens checkpoint_tokens)
    : settings_(spec.trace) {
  if (settings_ == nullptr) return;
  TraceHeader const header{block_tokens, checkpoint_tokens, arm_name(spec.arm), policy_name(spec),
                           settings_->note};
  TraceWriter& writer =
      writer_.emplace(open_trace_file(settings_->path), header, settings_->path.string(),
                      TraceWriterOptions{.ring_bytes = settings_->ring_bytes});
  history_.emplace(writer, block_tokens);
}

void TraceSession::close() {
  if (!writer_) return;
  writer_->close();
  settings_->problem = writer_->problem();
}

}  // namespace hybridstate::runtime
