"""The command `tangentkit`: sub-commands that call the library; no logic lives here."""

from tangentkit.cli.app import main as main
