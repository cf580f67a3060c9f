"""The patterns of `code_injection`: shell, query and code injection. It knows only what a pattern is."""

from __future__ import annotations

from espalier.constraints.safety.patterns.pattern import COMMAND, END, START, SafetyPattern


def _code(
    name: str, itself: str, about: str, *, before: str = COMMAND, after: str = "", part: str = "code_injection"
) -> SafetyPattern:
    return SafetyPattern(
        name=name, category="code_injection", itself=itself, about=about, before=before, after=after, part=part
    )


_RM = r"[ \t]+(?:-[dirv]+|--(?:verbose|no-preserve-root|preserve-root|one-file-system|interactive|dir))"
_CHMOD = r"[ \t]+(?:-[rvcf]+|--(?:recursive|verbose|changes|silent|quiet))"
_GAP = r"(?:[ \t]+|\$\{ifs\})"
_SHELL = r"(?:/(?:usr/)?bin/)?(?:env[ \t]+)?(?:ba|z|k|da)?sh"
_AS_ROOT = (
    r"(?:apache2?|apt|apt-get|bash|brew|cat|chmod|chown|chroot|cp|crontab|curl|dd|dnf|docker|dpkg|fdisk|find|gem|grub-install"
    r"|iptables|journalctl|kill|killall|ln|make|mkdir|mkfs|modprobe|mount|mv|nano|nginx|npm|pacman|passwd|pip|pip3|pkill"
    r"|poweroff|python|python3|reboot|rm|sed|service|sh|shutdown|snap|su|systemctl|tar|tee|touch|ufw|umount|useradd|usermod"
    r"|vi|vim|visudo|wget|yum|zypper)"
)
_FETCH = r"(?:curl|wget|nc|ncat|bash|sh|sudo|rm|eval|base64|whoami|id)"
_GIVEN = (
    r"(?:input[ \t]*\(|raw_input[ \t]*\(|request[.\[]|req\.|sys\.argv|atob[ \t]*\(|base64|\$_(?:get|post"
    r"|request|cookie)"
    r"|params\[)"
)

CODE: tuple[SafetyPattern, ...] = (
    _code(
        "rm_recursive_force",
        rf"rm(?:{_RM})*[ \t]+(?:-[div]*(?:r[dirv]*f|f[dfiv]*r)"
        rf"|(?:-[div]*r[dirv]*|--recursive)(?:{_RM})*[ \t]+(?:-[dirv]*f|--force)"
        rf"|(?:-[div]*f[dfiv]*|--force)(?:{_RM})*[ \t]+(?:-[dfiv]*r|--recursive))",
        "rm -rf, -fr, -r -f, --recursive --force",
    ),
    _code(
        "rm_flags_last",
        r"rm(?:[ \t]+[^\s;&|<>()`-][^\s;&|<>()`]*)+[ \t]+-[div]*(?:r[dirv]*f|f[dfiv]*r)",
        "rm x -rf, of any names",
        part="rm_flags_last",
    ),
    _code("chained_rm", rf"rm{_GAP}[^\s=(]", "rm right after ; | or &", before=r"[;|&][ \t]*"),
    _code("sudo", r"sudo[ \t]+(?:-[a-z]|[./~$])", "sudo and an option or a path", before=START),
    _code("sudo_command", rf"sudo[ \t]+{_AS_ROOT}", "sudo and one of some 60 commands", before=START, after=END),
    _code(
        "pipe_to_shell",
        rf"\|[ \t]*(?:sudo[ \t]+(?:-[a-z]+[ \t]+)*)?{_SHELL}",
        "| sh, | bash, | sudo bash at the end of a command",
        before="",
        after=r"(?:[ \t]+-|[ \t]*(?:[\n;&\"'`<)]|\Z))",
    ),
    _code(
        "download_and_run",
        r"(?:(?:curl|wget)[ \t][^\n|]*\|[ \t]*(?:sudo[ \t]+)?(?:python[0-9.]*|perl|ruby|node|php)"
        r"|(?:iwr|irm|invoke-webrequest|invoke-restmethod)[ \t][^\n|]*\|[ \t]*(?:iex|invoke-expression))",
        "curl x | python, iwr x | iex",
        after=END,
        part="download_and_run",
    ),
    _code("powershell_eval", r"(?:iex|invoke-expression)[ \t]*\(", "IEX( and Invoke-Expression("),
    _code(
        "command_substitution",
        rf"\$\([ \t]*{_FETCH}",
        "$( with a command that fetches, decodes, deletes or runs",
        before="",
        after=END,
    ),
    _code(
        "backtick_substitution",
        rf"`[ \t]*{_FETCH}(?:[ \t]|`)",
        "a backtick right after = or a quote, with such a command",
        before=r"[=\"']",
    ),
    _code("process_substitution", r"(?:ba|z|k|da)?sh[ \t]+<\([ \t]*(?:curl|wget)", "bash <(curl"),
    _code(
        "password_files",
        rf"(?:cat|less|more|head|tail|nl|tac|strings|xxd|base64){_GAP}(?:-[a-z0-9]+[ \t]+)*/etc/(?:passwd"
        rf"|shadow|sudoers)",
        "cat /etc/passwd and the like",
        before=r"(?:^|[^\w.-]|\})",
    ),
    _code("chmod_777", rf"chmod(?:{_CHMOD})*[ \t]+(?:[02-7]?777|(?:a|ugo)?[+=]rwx)", "chmod 777, a+rwx"),
    _code(
        "fork_bomb",
        r"(?::[ \t]*\([ \t]*\)[ \t]*\{[ \t\n]*:[ \t]*\|[ \t]*:"
        r"|\(\)[ \t]*\{[ \t\n]*[a-z_.]+[ \t]*\|[ \t]*[a-z_.]+[ \t]*&[ \t\n]*\})",
        ":(){ :|:& };:, and with names",
        before="",
    ),
    _code(
        "reverse_shell",
        r"(?:/dev/(?:tcp|udp)/[a-z0-9]|n(?:c|cat)(?:[ \t]+[a-z0-9.:-]+)*[ \t]+(?:-[a-z]*e|--(?:sh-)?exec)[ \t]"
        r"|/bin/(?:ba|z|k|da)?sh[\"', \t]+-i|exec:[\"']?(?:/bin/)?(?:ba)?sh)",
        "/dev/tcp/, nc -e, /bin/sh -i, socat exec:sh",
        part="reverse_shell",
    ),
    _code(
        "shell_escape",
        r"(?:-exec[ \t]+(?:/bin/)?(?:ba)?sh|system[ \t]*\([ \t]*[\"'](?:/bin/)?(?:ba)?sh|:![ \t]*(?:/bin/)?(?:ba)?sh)",
        "a shell from find -exec, system( or vim",
        before="",
        after=END,
    ),
    _code(
        "eval_of_input",
        rf"(?:(?:eval|exec|system|popen|shell_exec|passthru|spawn)[ \t]*\([ \t]*{_GIVEN}"
        r"|__import__[ \t]*\([ \t]*[\"'](?:os|subprocess|pty)[\"'])",
        "eval( or exec( or system( of what a user sent",
        before=START,
    ),
    _code(
        "sql_injection",
        r"(?:['\"][ \t]*(?:\)[ \t]*)?;[ \t]*(?:drop|truncate)[ \t]+(?:table|database)[ \t]"
        r"|['\"][ \t]*or[ \t]+(?:1[ \t]*=[ \t]*1|'[^'\n]*'[ \t]*=[ \t]*'|\"[^\"\n]*\"[ \t]*=[ \t]*\")"
        r"|['\"][ \t]*union[ \t]+(?:all[ \t]+)?select[ \t]"
        r"|['\"][ \t]*(?:and|or|\|\|)[ \t]+(?:pg_)?(?:sleep|benchmark)[ \t]*\("
        r"|['\"][ \t]*(?:and|or)[ \t]+1[ \t]*=[ \t]*convert[ \t]*\("
        r"|;[ \t]*(?:exec[ \t]+(?:master\.\.)?xp_cmdshell|waitfor[ \t]+delay)"
        r"|[0-9][ \t]*;[ \t]*drop[ \t]+(?:table|database)[ \t]"
        r"|[a-z0-9_]'--(?:[ \t\n;]))",
        "a quote, then ; DROP TABLE, OR 1=1, UNION SELECT, SLEEP( and the like",
        before="",
        part="sql_injection",
    ),
    _code("sql_comment", r"(?:admin|root|user)'[ \t]*--", "admin'--", after=r"(?:[ \t\n]|\Z)"),
)
