// Remembers what llama.cpp finds out about a template: see template_memory.h.

#include "template_memory.h"

#include <ctime>
#include <exception>

#include "chat-auto-parser.h"
#include "chat_templates.h"
#include "common.h"
#include "json.h"
#include "template_renderings.h"

namespace {

constexpr size_t max_known = 32;
constexpr const char * trimmed_by_llama_cpp = "You have access to the following functions in JSONSchema format";

std::string today(const char * format) {
    const std::time_t now = std::time(nullptr);
    char text[64];
    return std::string(text, std::strftime(text, sizeof(text), format, std::localtime(&now)));
}

void parse_arguments(common_json & message) {
    if (!message.contains("tool_calls")) {
        return;
    }
    for (auto & call : message["tool_calls"]) {
        auto & arguments = call["function"]["arguments"];
        if (arguments.is_string()) {
            arguments = common_json::parse(arguments.get<std::string>());
        }
    }
}

}  // namespace

namespace causerie {

TemplateMemory::TemplateMemory(const common_chat_templates & templates)
    : templates_(templates), template_(*templates.template_default) {
    autoparser::generation_params params;
    params.messages = common_json::array();
    params.messages.push_back({{"role", "user"}, {"content", "x"}});
    params.add_generation_prompt = true;
    const std::string & source = template_.source();
    try {
        const bool special = common_chat_try_specialized_template(template_, source, params).has_value();
        is_usual_ = !special && source.find(trimmed_by_llama_cpp) == std::string::npos;
    } catch (const std::exception &) {  // then it is not known
    }
}

std::string TemplateMemory::render(const common_chat_templates_inputs & inputs) const {
    const auto & caps = template_.caps;
    autoparser::generation_params params;
    params.messages = common_json::array();
    for (const auto & message : inputs.messages) {
        auto json = message.to_json_oaicompat();
        if (json.at("role") == "developer") {
            json["role"] = "system";
        }
        if (caps.supports_object_arguments) {
            parse_arguments(json);
        }
        params.messages.push_back(json);
    }
    params.tools = common_chat_tools_to_json_oaicompat(inputs.tools);
    params.tool_choice = inputs.tool_choice;
    params.parallel_tool_calls = inputs.parallel_tool_calls;
    params.enable_thinking = inputs.enable_thinking;
    params.add_generation_prompt = inputs.add_generation_prompt;
    params.mark_input = false;
    params.extra_context = common_json::object();
    params.extra_context["datetime"] = today("%b %d %Y");
    params.extra_context["date_string"] = today("%d %b %Y");
    for (const auto & [key, value] : inputs.chat_template_kwargs) {
        params.extra_context[key] = common_json::parse(value);
    }
    return common_chat_template_direct_apply(template_, params);
}

common_chat_params TemplateMemory::apply_in_its_way(const common_chat_templates_inputs & inputs, const std::string & key) {
    std::optional<common_chat_params> known = remembered(key);
    Renderings renderings(known ? known->generation_prompt : "");
    try {
        common_chat_params params = common_chat_templates_apply(&templates_, inputs);
        const std::string & begins = renderings.found();
        if (!begins.empty() && params.generation_prompt == begins && params.prompt == renderings.first()) {
            remember(key, params);
        }
        return params;
    } catch (const Rendered & rendered) {
        known->prompt = rendered.text;
        return *known;
    }
}

void TemplateMemory::remember(const std::string & key, const common_chat_params & params) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (known_.size() >= max_known) {
        known_.clear();
    }
    known_[key] = params;
    known_[key].prompt.clear();
}

std::optional<common_chat_params> TemplateMemory::remembered(const std::string & key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(key);
    return found == known_.end() ? std::nullopt : std::optional(found->second);
}

// Whether what begins a reply to these messages is what is known of it.
bool TemplateMemory::begins_as(const common_chat_params & known, const common_chat_templates_inputs & inputs) const {
    if (!known.generation_prompt.empty()) {
        return !inputs.add_generation_prompt || string_ends_with(known.prompt, known.generation_prompt);
    }
    if (template_.source().find("add_generation_prompt") == std::string::npos) {
        return true;
    }
    common_chat_templates_inputs other = inputs;
    other.add_generation_prompt = !inputs.add_generation_prompt;
    return render(other) == known.prompt;
}

common_chat_params TemplateMemory::apply(const common_chat_templates_inputs & inputs, const std::string & options) {
    const bool has_system = !inputs.messages.empty() && inputs.messages.front().role == "system";
    if (inputs.messages.empty() || inputs.continue_final_message != COMMON_CHAT_CONTINUATION_NONE ||
        (has_system && !template_.caps.supports_system_role)) {
        return common_chat_templates_apply(&templates_, inputs);
    }
    const std::string key = inputs.messages.back().role + options;
    if (!is_usual_) {
        return apply_in_its_way(inputs, key);
    }
    if (std::optional<common_chat_params> known = remembered(key)) {
        known->prompt = render(inputs);
        if (begins_as(*known, inputs)) {
            return *known;
        }
    }
    common_chat_params params = common_chat_templates_apply(&templates_, inputs);
    if (render(inputs) == params.prompt) {
        remember(key, params);
    }
    return params;
}

}  // namespace causerie
