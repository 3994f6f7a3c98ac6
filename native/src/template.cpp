// Chat templates: llama.cpp's Jinja engine and its knowledge of tool and thinking formats, with JSON in and out.

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "causerie.h"
#include "chat.h"
#include "chat_templates.h"  // generated: llama.cpp keeps the struct to itself
#include "copy_out.h"
#include "guard.h"
#include "json.h"
#include "large_stack.h"
#include "template_guard.h"
#include "template_limits.h"
#include "template_memory.h"

struct causerie_template {
    common_chat_templates_ptr templates;
    std::unique_ptr<causerie::TemplateMemory> memory;
};

namespace {

std::string date(const char * format, std::time_t when) {
    const std::tm * parts = std::localtime(&when);  // null for what no calendar knows
    char text[64];
    return parts == nullptr ? "" : std::string(text, std::strftime(text, sizeof(text), format, parts));
}

common_chat_templates_inputs read_inputs(const common_json & json) {
    common_chat_templates_inputs inputs;
    inputs.messages = common_chat_msgs_parse_oaicompat(json.at("messages"));
    if (json.contains("tools")) {
        inputs.tools = common_chat_tools_parse_oaicompat(json.at("tools"));
    }
    inputs.tool_choice = common_chat_tool_choice_parse_oaicompat(json.value("tool_choice", "auto"));
    inputs.parallel_tool_calls = json.value("parallel_tool_calls", false);
    inputs.add_generation_prompt = json.value("add_generation_prompt", true);
    inputs.enable_thinking = json.value("enable_thinking", true);
    inputs.reasoning_format = common_reasoning_format_from_name(json.value("reasoning_format", "none"));
    inputs.json_schema = json.value("json_schema", "");
    inputs.grammar = json.value("grammar", "");
    if (json.contains("continue_final_message")) {
        inputs.continue_final_message = common_chat_continuation_parse(json.at("continue_final_message"));
    }
    if (json.contains("kwargs")) {
        for (const auto & [key, value] : json.at("kwargs").items()) {
            inputs.chat_template_kwargs[key] = value.dump();
        }
    }
    if (json.contains("now")) {  // seconds since the epoch, for templates that print the date
        const auto now = json.at("now").get<int64_t>();
        inputs.now = std::chrono::system_clock::time_point(std::chrono::seconds(now));
        // These tell the present otherwise, whatever "now" says.
        inputs.chat_template_kwargs.emplace("datetime", common_json(date("%b %d %Y", now)).dump());
        inputs.chat_template_kwargs.emplace("date_string", common_json(date("%d %b %Y", now)).dump());
    }
    return inputs;
}

common_json write_params(const common_chat_params & params) {
    common_json out = common_json::object();
    out["prompt"] = params.prompt;
    out["format"] = std::string(common_chat_format_name(params.format));
    out["grammar"] = params.grammar;
    out["grammar_lazy"] = params.grammar_lazy;
    out["generation_prompt"] = params.generation_prompt;
    out["supports_thinking"] = params.supports_thinking;
    out["thinking_start_tag"] = params.thinking_start_tag;
    out["thinking_end_tags"] = params.thinking_end_tags;
    out["preserved_tokens"] = params.preserved_tokens;
    out["stops"] = params.additional_stops;
    common_json triggers = common_json::array();
    for (const auto & trigger : params.grammar_triggers) {
        common_json entry = common_json::object();
        entry["type"] = static_cast<int>(trigger.type);
        entry["value"] = trigger.value;
        entry["token"] = static_cast<int>(trigger.token);
        triggers.push_back(entry);
    }
    out["grammar_triggers"] = triggers;
    out["parser"] = params.parser;
    return out;
}

// Templates whose program is a guarded one from the start: making one of llama.cpp's runs it.
common_chat_templates_ptr make_templates(const std::string & source, const char * bos_token, const char * eos_token) {
    const std::string begin = "{% if false %}";
    const std::string end = "{% endif %}";
    jinja::lexer lexer;
    jinja::parse_from_tokens(lexer.tokenize(source));  // so that it cannot end what is put around it
    auto templates = common_chat_templates_init(nullptr, begin + source + end, bos_token, eos_token);
    auto & tmpl = *templates->template_default;
    // llama.cpp has mended what it knows to be wrong in some templates.
    const std::string mended = tmpl.src.substr(begin.size(), tmpl.src.size() - begin.size() - end.size());
    const auto tokens = lexer.tokenize(mended);
    tmpl.src = tokens.source;
    tmpl.prog = jinja::parse_from_tokens(tokens);
    causerie::guard(tmpl.prog);
    tmpl.caps = jinja::caps_get(tmpl.prog);
    return templates;
}

}  // namespace

causerie_template * causerie_template_new(const char * source, const char * bos_token, const char * eos_token) {
    return causerie_guarded<causerie_template *>(
        __func__,
        [&] {
            auto result = std::make_unique<causerie_template>();
            causerie::within_limits(causerie::allowance_for(0, 0, 0), [&] {
                result->templates = make_templates(source, bos_token, eos_token);
                result->memory = std::make_unique<causerie::TemplateMemory>(*result->templates);
            });
            return result.release();
        },
        nullptr);
}

void causerie_template_free(causerie_template * tmpl) {
    causerie_guarded_void(__func__, [&] { causerie::on_large_stack([&] { delete tmpl; }); });
}

char * causerie_template_apply(const causerie_template * tmpl, const char * inputs_json) {
    return causerie_guarded<char *>(
        __func__,
        [&] {
            char * out = nullptr;
            causerie::on_large_stack([&] {
                auto json = common_json::parse(inputs_json);
                const auto inputs = read_inputs(json);
                json.erase("messages");
                const auto options = json.dump();
                const auto allowance =
                    causerie::allowance_for(inputs.messages.size(), std::strlen(inputs_json), options.size());
                common_chat_params params;
                causerie::within_limits(allowance, [&] { params = tmpl->memory->apply(inputs, options); });
                out = causerie::copy_out(write_params(params).dump_safe());
            });
            return out;
        },
        nullptr);
}

char * causerie_template_caps(const causerie_template * tmpl) {
    return causerie_guarded<char *>(
        __func__,
        [&] {
            char * out = nullptr;
            causerie::within_limits(causerie::allowance_for(0, 0, 0), [&] {
                common_json caps = common_json::object();
                for (const auto & [name, value] : common_chat_templates_get_caps(tmpl->templates.get())) {
                    caps[name] = value;
                }
                caps["supports_thinking"] = common_chat_templates_support_enable_thinking(tmpl->templates.get());
                out = causerie::copy_out(caps.dump());
            });
            return out;
        },
        nullptr);
}

void causerie_string_free(char * text) { std::free(text); }
