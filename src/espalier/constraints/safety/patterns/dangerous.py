"""The patterns of `dangerous`: instructions for weapons and drugs, commands that destroy data. It knows only what a
pattern is."""

from __future__ import annotations

from espalier.constraints.safety.patterns.pattern import COMMAND, SafetyPattern

_HOW = (
    r"(?:how (?:to|do (?:i|you|we)|can (?:i|you|we)|(?:one|i|you) (?:would|could|can))|steps (?:to|for)"
    r"|guide (?:to|on|for)"
    r"|instructions (?:for|to|on how to)|tutorial (?:on|for)|ways? to|recipe for|synthesis of|ingredients (?:for|of)"
    r"|materials (?:needed )?(?:for|to)|building)"
)
_MAKE = (
    r"(?:make|making|build|building|create|creating|construct|constructing|assemble|prepare|synthesi[sz]e|synthesi[sz]ing"
    r"|cook|cooking|produce|producing|acquire|cultivate|weaponi[sz]e|extract|3d[ -]print|manufacture)"
)
_A = r"(?:(?:a|an|your own|some|homemade|improvised|untraceable|working) )*"
_KIND = r"(?:(?:pipe|nail|dirty|car|letter|fertili[sz]er|petrol|atomic|nuclear|chemical|time)[ -])?"
_THINGS = (
    rf"(?:{_KIND}bombs?|(?:improvised )?explosive devices?|explosives|detonators?|landmines?"
    rf"|molotov cocktails?|(?:hand )?grenades?"
    r"|nerve (?:agents?|gas)|sarin(?: gas)?|vx|chlorine gas|mustard gas|ricin|anthrax|bioweapons?|chemical weapons?"
    r"|silencers?|gun suppressors?|suppressors?|tatp|napalm|thermite|ied|c-?4|gunpowder|nitroglycerine?"
    r"|ghost guns?|guns?"
    r"|firearms?)"
)
_DRUGS = (
    r"(?:methamphetamines?|amphetamines?|meth|crystal meth|crack(?: cocaine)?|cocaine|heroin|fentanyl|mdma"
    r"|lsd|dmt|ghb|pcp"
    r"|ecstasy)"
)
_AFTER = r"(?:[^\w -]|[ ](?:at|in|from|with|without|for|that|and|or|using|by|step|yourself)[^\w]|\Z)"
"""The end of a phrase, so that `C4 plants` is none."""
_DISK = r"/dev/(?:sd|hd|vd|nvme|disk|mmcblk|xvd)"


def _words(name: str, things: str, about: str) -> SafetyPattern:
    return SafetyPattern(
        name=name,
        category="dangerous",
        itself=rf"{_HOW} (?:{_MAKE} )?{_A}{things}",
        about=about,
        after=_AFTER,
        source="the subjects of AdvBench and HarmBench",
        part="instructions",
    )


def _command(name: str, itself: str, about: str, source: str, *, before: str = COMMAND) -> SafetyPattern:
    return SafetyPattern(
        name=name, category="dangerous", itself=itself, about=about, before=before, source=source, part=name
    )


DANGEROUS: tuple[SafetyPattern, ...] = (
    _words("weapon_instructions", _THINGS, "how to make a bomb, a nerve agent and the like"),
    _words("drug_instructions", _DRUGS, "how to make methamphetamine, fentanyl and the like"),
    _command(
        "disk_wipe",
        rf"(?:mkfs(?:\.[a-z0-9]+)?[ \t]+(?:-[a-z]+[ \t]+(?:[a-z0-9]+[ \t]+)?)*{_DISK}|of={_DISK}"
        rf"|(?:shred|wipefs|blkdiscard|mkswap|hdparm|sgdisk)(?:[ \t]+[^\s;&|/]+)*[ \t]+{_DISK}"
        rf"|sgdisk[ \t]+--zap-all|hdparm[ \t]+--security-erase|cryptsetup[ \t]+(?:luks)?erase"
        rf"|fdisk[ \t]+{_DISK}|parted[ \t]+(?:-s[ \t]+)?{_DISK}[a-z0-9]*[ \t]+mklabel)",
        "mkfs, dd, shred, wipefs and the like onto a device",
        "mkfs(8), dd(1), shred(1), wipefs(8), hdparm(8), cryptsetup(8)",
    ),
    _command("disk_redirect", rf">[ \t]*{_DISK}|mv[ \t]+[/~][ \t]+/dev/null", "> /dev/sda", "bash(1)", before=""),
    _command(
        "windows_wipe",
        r"(?:format[ \t]+[a-z]:|vssadmin(?:\.exe)?[ \t]+delete[ \t]+shadows|wmic[ \t]+shadowcopy[ \t]+delete"
        r"|wbadmin[ \t]+delete[ \t]+catalog|bcdedit[ \t]+/set[^\n]*recoveryenabled[ \t]+no|cipher[ \t]+/w"
        r"|del(?:[ \t]+/[a-z])*[ \t]+/[fsq][ \t]+/[fsq]|r(?:m)?d(?:ir)?[ \t]+/s[ \t]+/q|clear-disk[ \t]"
        r"|format-volume[ \t]"
        r"|remove-item[ \t]+-recurse[ \t]+-force[ \t]+[a-z]:|wevtutil[ \t]+(?:cl|clear-log)[ \t])",
        "format c:, deleting shadow copies, del /s /q, rd /s /q",
        "Microsoft's command reference; MITRE ATT&CK T1485, T1490, T1561",
    ),
)
