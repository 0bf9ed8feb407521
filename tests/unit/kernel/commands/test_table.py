from agent_magics.kernel.commands.table import table


def test_numbers_stand_on_the_right_and_words_on_the_left():
    rows = [("`a`", "1,250", "0.045 USD", "no"), ("b", "-", "", "12 of them, or so")]
    assert table(("Tool", "Tokens", "Cost", "Says"), rows).splitlines() == [
        "| Tool | Tokens | Cost | Says |",
        "| :--- | ---: | ---: | :--- |",
        "| `a` | 1,250 | 0.045 USD | no |",
        "| b | - |  | 12 of them, or so |",
    ]


def test_nothing_in_a_cell_breaks_the_table():
    assert table(("A",), [("x|y\nz",)]) == "| A |\n| :--- |\n| x\\|y z |"
    assert table(("A", "B"), []).count("\n") == 1
