// What llama.cpp finds out about a template, remembered from one prompt to the next.
//
// Each time it applies a template, it studies the format of replies by rendering a dozen probes, and renders the messages
// three times. All but the prompt's text depends on the options alone. So the rest is kept for each set of options, and
// of a further history just the text is rendered, in the way that gave llama.cpp's own text the first time.

#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "chat.h"

namespace causerie {

class TemplateMemory {
  public:
    TemplateMemory(
        const common_chat_templates * templates, const llama_model * model, const std::string & bos,
        const std::string & eos);

    // options: all inputs but the messages, as text.
    common_chat_params apply(const common_chat_templates_inputs & inputs, const std::string & options);

  private:
    std::string render(const common_chat_templates_inputs & inputs) const;

    const common_chat_templates * templates_;
    std::unique_ptr<common_chat_template> own_;  // null for a template that llama.cpp treats in a way of its own
    bool add_bos_ = false;
    bool add_eos_ = false;
    std::mutex mutex_;
    std::map<std::string, common_chat_params> known_;
};

}  // namespace causerie
