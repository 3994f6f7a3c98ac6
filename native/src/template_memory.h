// What llama.cpp finds out about a template, remembered from one prompt to the next.
//
// Each time it applies a template, it studies the format of replies by rendering a dozen probes, and renders the messages
// three times. All but the prompt's text depends on the options alone. So the rest is kept for each set of options, and
// of a further history just the text is rendered, in the way that gave llama.cpp's own text the first time. Where llama.cpp
// treats a template in a way of its own, that way is gone as far as the text (template_renderings.h).
//
// All of it runs within limits (template_limits.h).

#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "chat.h"

namespace causerie {

class TemplateMemory {
  public:
    // templates: with a guarded program; they must outlive this.
    explicit TemplateMemory(const common_chat_templates & templates);

    // options: all inputs but the messages, as text.
    common_chat_params apply(const common_chat_templates_inputs & inputs, const std::string & options);

  private:
    std::string render(const common_chat_templates_inputs & inputs) const;
    std::optional<common_chat_params> remembered(const std::string & key);
    bool begins_as(const common_chat_params & known, const common_chat_templates_inputs & inputs) const;
    common_chat_params apply_in_its_way(const common_chat_templates_inputs & inputs, const std::string & key);
    void remember(const std::string & key, const common_chat_params & params);

    const common_chat_templates & templates_;
    const common_chat_template & template_;
    bool is_usual_ = false;  // not where llama.cpp treats the template in a way of its own
    std::mutex mutex_;
    std::map<std::string, common_chat_params> known_;
};

}  // namespace causerie
