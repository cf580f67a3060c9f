"""Small chat templates in the shape of those that models of the field come with. Written for tests; they know no model.

They keep what tools, calls and results depend on: which roles are taken, what is refused, how arguments are read.
"""

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

HERMES = r"""
{%- if tools %}
{{- "<|im_start|>system\n" }}
{%- if messages[0].role == "system" %}{{- messages[0].content + "\n\n" }}{% endif %}
{{- "<tools>" }}
{%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{% endfor %}
{{- "\n</tools>\nCalls look so:\n<tool_call>\n{\"name\": <name>, \"arguments\": <object>}\n</tool_call><|im_end|>\n" }}
{%- endif %}
{%- for m in messages %}
{%- if m.role == "tool" %}
{{- "<|im_start|>user\n<tool_response>\n" + m.content + "\n</tool_response><|im_end|>\n" }}
{%- elif m.role == "system" and tools %}
{%- else %}
{{- "<|im_start|>" + m.role + "\n" + m.content }}
{%- for call in m.tool_calls or [] %}
{%- if call.function %}{% set call = call.function %}{% endif %}
{{- '\n<tool_call>\n{"name": "' + call.name + '", "arguments": ' }}
{{- call.arguments | tojson }}
{{- "}\n</tool_call>" }}
{%- endfor %}
{{- "<|im_end|>\n" }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<|im_start|>assistant\n" }}{% endif %}
"""

HERMES_NAMED_RESULTS = r"""
{%- for tool in tools or [] %}
{{- tool.function.name + ": " + tool.function.description + " <tool_call>\n" + '{"name": "", "arguments": ""}\n' }}
{%- endfor %}
{%- for m in messages %}
{%- if m.role == "tool" %}
{%- if not m.name is defined %}{{ raise_exception("a result has the name of its function") }}{% endif %}
{{- '{"name": "' + m.name + '", "content": ' + (m.content | tojson) + "}\n" }}
{%- else %}{{- m.role + ": " + m.content + (m.tool_calls | tojson if m.tool_calls else "") + "\n" }}
{%- endif %}
{%- endfor %}
"""

QWEN_CODER = r"""
{%- for tool in tools or [] %}{{- "<name>" ~ tool.function.name ~ "</name>" }}{% endfor %}
{%- if tools %}
{{- '<tool_call>\n<function=NAME>\n<parameter=P>\nvalue\n</parameter>\n</function>\n</tool_call>' }}
{%- endif %}
{%- for m in messages %}
{{- m.role + ": " + m.content }}
{%- for call in m.tool_calls or [] %}
{{- "<tool_call>\n<function=" + call.function.name + ">\n" }}
{%- for name, value in call.function.arguments | items %}
{{- "<parameter=" + name + ">\n" + (value | string) + "\n</parameter>\n" }}
{%- endfor %}
{{- "</function>\n</tool_call>" }}
{%- endfor %}
{%- endfor %}
"""

GLM = r"""
{%- if tools %}{{ tools | tojson }}<tool_call>{function-name}
<arg_key>{key}</arg_key>
<arg_value>{value}</arg_value>
</tool_call>{% endif %}
{%- for m in messages %}<|{{ m.role }}|>{{ m.content }}
{%- for call in m.tool_calls or [] %}<tool_call>{{ call.function.name }}
{% for k, v in call.function.arguments.items() %}<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value>{% endfor %}
</tool_call>{% endfor %}
{%- endfor %}
"""

MISTRAL = r"""
{%- if messages[0]["role"] == "system" %}
{%- set system = messages[0]["content"] %}{% set loop_messages = messages[1:] %}
{%- else %}
{%- set loop_messages = messages %}
{%- endif %}
{%- set users = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for m in loop_messages %}
{%- if not (m.role == "tool" or m.tool_calls is defined) %}
{%- if (m["role"] == "user") != (ns.index % 2 == 0) %}{{ raise_exception("roles must alternate") }}{% endif %}
{%- set ns.index = ns.index + 1 %}
{%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for m in loop_messages %}
{%- if m["role"] == "user" %}
{%- if tools is not none and (m == users[-1]) %}
{{- "[AVAILABLE_TOOLS] " + (tools | tojson) + "[/AVAILABLE_TOOLS]" }}
{%- endif %}
{%- if loop.last and system is defined %}{{- "[INST] " + system + "\n\n" + m["content"] + "[/INST]" }}
{%- else %}{{- "[INST] " + m["content"] + "[/INST]" }}{% endif %}
{%- elif m.tool_calls is defined %}
{{- "[TOOL_CALLS] [" }}
{%- for call in m.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception("ids have 9 characters") }}{% endif %}
{{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' }}
{%- if not loop.last %}{{- ", " }}{% endif %}
{%- endfor %}
{{- "]" + eos_token }}
{%- elif m["role"] == "assistant" %}{{- " " + m["content"] + eos_token }}
{%- elif m["role"] == "tool" %}
{%- if m.tool_call_id | length != 9 %}{{ raise_exception("ids have 9 characters") }}{% endif %}
{{- '[TOOL_RESULTS] {"content": ' + m.content + ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' }}
{%- else %}{{ raise_exception("only user and assistant") }}
{%- endif %}
{%- endfor %}
"""

MISTRAL_ARGS = r"""
{%- if tools %}{{- "[AVAILABLE_TOOLS]" + (tools | tojson) + "[/AVAILABLE_TOOLS]" }}{% endif %}
{%- for m in messages %}
{{- "[" + m.role + "]" + m.content }}
{%- for call in m.tool_calls or [] %}
{%- set arguments = call["function"]["arguments"] %}
{%- if arguments is not string %}{% set arguments = arguments | tojson %}{% endif %}
{{- "[TOOL_CALLS]" + call["function"]["name"] + "[ARGS]" + arguments }}
{%- endfor %}
{%- endfor %}
"""

LLAMA = r"""
{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% endif %}
{%- if not tools is defined %}{% set tools = none %}{% endif %}
{%- if messages[0]["role"] == "system" %}
{%- set system = messages[0]["content"] | trim %}{% set messages = messages[1:] %}
{%- else %}{% set system = "" %}{% endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}{{- "Environment: ipython\n" }}{% endif %}
{{- "Today Date: " + date_string + "\n\n" + system + "<|eot_id|>" }}
{%- if not tools is none %}
{%- if messages | length == 0 %}{{ raise_exception("no first user message") }}{% endif %}
{%- set first = messages[0]["content"] | trim %}{% set messages = messages[1:] %}
{{- '<|start_header_id|>user<|end_header_id|>\n\n' }}
{{- 'Answer with {"name": function name, "parameters": its arguments}.\n\n' }}
{%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\n\n" }}{% endfor %}
{{- first + "<|eot_id|>" }}
{%- endif %}
{%- for m in messages %}
{%- if "tool_calls" in m %}
{%- if not m.tool_calls | length == 1 %}{{ raise_exception("one call at once") }}{% endif %}
{%- set call = m.tool_calls[0].function %}
{{- "<|start_header_id|>assistant<|end_header_id|>\n\n" }}
{{- '{"name": "' + call.name + '", ' }}
{{- '"parameters": ' }}
{{- call.arguments | tojson }}
{{- "}<|eot_id|>" }}
{%- elif m.role == "tool" %}
{{- "<|start_header_id|>ipython<|end_header_id|>\n\n" + (m.content | tojson) + "<|eot_id|>" }}
{%- else %}
{{- "<|start_header_id|>" + m["role"] + "<|end_header_id|>\n\n" + m["content"] | trim + "<|eot_id|>" }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<|start_header_id|>assistant<|end_header_id|>\n\n" }}{% endif %}
"""

PYTHONIC = r"""
{%- if tools %}
{{- "Environment: ipython\nAnswer with " }}
{{- "[func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)]" }}
{%- for t in tools %}{{- t | tojson(indent=4) }}{% endfor %}
{%- endif %}
{%- for m in messages %}
{%- if m.role == "tool" %}{{- "<|ipython|>" + ({"output": m.content} | tojson) }}
{%- elif "tool_calls" in m %}
{{- "<|assistant|>[" }}
{%- for call in m.tool_calls %}
{{- call.function.name + "(" }}
{%- for p in call.function.arguments %}
{{- p + '="' + call.function.arguments[p] + '"' }}
{%- if not loop.last %}{{- ", " }}{% endif %}
{%- endfor %}
{{- ")" }}
{%- endfor %}
{{- "]" }}
{%- else %}{{- "<|" + m.role + "|>" + m.content }}{% endif %}
{%- endfor %}
"""

FUNCTIONARY = r"""
{%- if tools %}
{{- "Environment: ipython\n" }}
{%- for t in tools %}{{- t.function | tojson }}{{- "\n" }}{% endfor %}
{{- "Begin with <function=NAME> and end with </function>; <|python_tag|> is for code\n" }}
{%- endif %}
{%- for m in messages %}
{{- "<|" + m.role + "|>" + m.content }}
{%- for call in m.tool_calls or [] %}
{{- "<function=" + call["function"]["name"] + ">" + call["function"]["arguments"] + "</function>" }}
{%- endfor %}
{%- endfor %}
"""

GEMMA = r"""
{{- bos_token }}
{%- if messages[0]["role"] == "system" %}{{ raise_exception("System role not supported") }}{% endif %}
{%- for m in messages %}
{%- if (m["role"] == "user") != (loop.index0 % 2 == 0) %}{{ raise_exception("roles must alternate") }}{% endif %}
{{- "<start_of_turn>" + ("model" if m["role"] == "assistant" else m["role"]) + "\n" }}
{{- m["content"] | trim + "<end_of_turn>\n" }}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<start_of_turn>model\n" }}{% endif %}
"""

HARMONY = r"""
{%- if tools %}
{{- "namespace functions {" }}{% for t in tools %}{{- "type " + t.function.name }}{% endfor %}{{- "}" }}
{%- endif %}
{%- for m in messages %}
{%- for call in m.tool_calls or [] %}
{{- "<|start|>assistant to=functions." + call.function.name + "<|channel|>commentary json<|message|>" }}
{{- call.function.arguments | tojson + "<|call|>" }}
{%- endfor %}
{{- "<|start|>" + m.role + "<|message|>" + m.content + "<|end|>" }}
{%- endfor %}
"""

DEEPSEEK = r"""
{%- for m in messages %}
{%- if m.tool_calls %}
{%- for call in m.tool_calls %}
{{- "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>" + call.type + "<｜tool▁sep｜>" + call.function.name }}
{{- "\n```json\n" + call.function.arguments + "\n```<｜tool▁call▁end｜>" }}
{%- endfor %}
{%- elif m.role == "tool" %}{{- "<｜tool▁output▁begin｜>" + m.content + "<｜tool▁output▁end｜>" }}
{%- elif m.role != "system" %}{{- "<｜" + m.role + "｜>" + m.content }}
{%- else %}{{- m.content }}{% endif %}
{%- endfor %}
"""

KIMI = r"""
{%- if tools %}{{- "<|im_system|>tool_declare<|im_middle|>" + (tools | tojson) + "<|im_end|>" }}{% endif %}
{%- for m in messages %}
{{- "<|im_middle|>" + m.content }}
{%- if m.tool_calls %}{{- "<|tool_calls_section_begin|>" }}{% endif %}
{%- for call in m.tool_calls or [] %}
{{- "<|tool_call_begin|>" + call.id + "<|tool_call_argument_begin|>" }}
{%- if call.function.arguments is string %}{{- call.function.arguments }}
{%- else %}{{- call.function.arguments | tojson }}{% endif %}
{{- "<|tool_call_end|>" }}
{%- endfor %}
{%- if m.tool_calls %}{{- "<|tool_calls_section_end|>" }}{% endif %}
{%- endfor %}
"""

GPT_OSS = r"""
{{- "<|start|>system<|message|>Reasoning: " + reasoning_effort | default("medium") + "\n\n" }}
{%- for name in builtin_tools or [] %}{{- "## " + name + "\n\n" }}{% endfor %}
{{- "# Valid channels: analysis, commentary, final.<|end|>" }}
{%- if messages[0].role in ("system", "developer") %}
{%- set instructions = messages[0].content %}{% set turns = messages[1:] %}
{%- else %}{% set instructions = "" %}{% set turns = messages %}
{%- endif %}
{%- if instructions or tools %}
{{- "<|start|>developer<|message|>" + instructions }}
{%- if tools %}
{{- "\n\nnamespace functions {\n" }}
{%- for t in tools %}{{- "type " + t.function.name + " = (_: any) => any;\n" }}{% endfor %}
{{- "}" }}
{%- endif %}
{{- "<|end|>" }}
{%- endif %}
{%- set last = namespace(call="") %}
{%- for m in turns %}
{%- if m.role == "assistant" and "tool_calls" in m %}
{%- set later = turns[loop.index:] | selectattr("role", "equalto", "assistant") %}
{%- set later = later | selectattr("tool_calls", "undefined") | list %}
{%- if m.content and m.thinking %}{{ raise_exception("content and thinking, and a call") }}{% endif %}
{%- set thought = m.content or m.thinking %}
{%- if thought and not later %}
{{- "<|start|>assistant<|channel|>analysis<|message|>" + thought + "<|end|>" }}
{%- endif %}
{%- set call = m.tool_calls[0].function %}
{{- "<|start|>assistant to=functions." + call.name + "<|channel|>commentary json<|message|>" }}
{{- call.arguments | tojson + "<|call|>" }}
{%- set last.call = call.name %}
{%- elif m.role == "assistant" %}
{{- "<|start|>assistant<|channel|>final<|message|>" + m.content + "<|end|>" }}
{%- set last.call = "" %}
{%- elif m.role == "tool" %}
{%- if not last.call %}{{ raise_exception("a result without a call") }}{% endif %}
{{- "<|start|>functions." + last.call + " to=assistant<|channel|>commentary<|message|>" }}
{{- m.content | tojson + "<|end|>" }}
{%- else %}{{- "<|start|>" + m.role + "<|message|>" + m.content + "<|end|>" }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<|start|>assistant" }}{% endif %}
"""
