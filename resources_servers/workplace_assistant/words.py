# SPDX-License-Identifier: Apache-2.0
"""The words that the company is made of: people, projects, what they write and do. Changing them changes the tables."""

DOMAIN = "harborlight.example"
OWNER = "Robin"
COLLEAGUES = (
    "Amara Osei",
    "Bruno Keller",
    "Carmen Vidal",
    "Dmitri Volkov",
    "Elena Rossi",
    "Farid Haddad",
    "Greta Lindholm",
    "Hiro Tanaka",
    "Ines Moreau",
    "Jonas Weber",
    "Kavya Menon",
    "Liam Gallagher",
    "Mei Zhang",
    "Nadia Kowalski",
    "Oscar Nilsson",
    "Priya Raman",
    "Quentin Dubois",
    "Rosa Delgado",
    "Stefan Petrov",
    "Tara Whitfield",
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
PROJECTS = (
    "Albatross",
    "Beacon",
    "Cascade",
    "Driftwood",
    "Ember",
    "Foxglove",
    "Granite",
    "Horizon",
    "Inkwell",
    "Juniper",
    "Keystone",
    "Lighthouse",
    "Meridian",
    "Northstar",
    "Orchard",
    "Paperboat",
)
# Subject and body.
EMAILS = (
    (
        "Budget for {project}",
        "Hello,\n\nthe numbers for {project} are ready. We are slightly over what was planned for travel. Can you look "
        "at them before {day}?\n\nBest,\n{name}",
    ),
    (
        "{project} kickoff notes",
        "Hi,\n\nplease find the notes of the {project} kickoff in the shared folder. Everyone has an action item.\n\n"
        "Regards,\n{name}",
    ),
    (
        "Question about {project}",
        "Hi,\n\nwho decides on the scope of {project}? A partner has asked me and I would like to answer by {day}.\n\n"
        "Thanks,\n{name}",
    ),
    (
        "{project} release delayed",
        "Hello,\n\nthe {project} release slips to {day}: two defects are still open. I will keep you posted.\n\n{name}",
    ),
    (
        "Invoice for {project}",
        "Dear team,\n\nthe supplier of {project} has sent the invoice. It is due on {day}; please approve it.\n\n"
        "Kind regards,\n{name}",
    ),
    (
        "{project} design feedback",
        "Hey,\n\nI like the new screens of {project}, but the contrast is too low. Can we talk on {day}?\n\n{name}",
    ),
    (
        "Hiring for {project}",
        "Hi,\n\nwe have three good candidates for the {project} team. Interviews begin on {day}.\n\nCheers,\n{name}",
    ),
    (
        "{project} customer complaint",
        "Hello,\n\na customer of {project} waits for an answer since {day}. Could you call them?\n\nThanks,\n{name}",
    ),
    (
        "Workshop on {project}",
        "Hi all,\n\nI plan a half-day workshop on {project} and need a room on {day}. Suggestions?\n\n{name}",
    ),
    (
        "{project} security review",
        "Hello,\n\nthe security review of {project} found nothing serious. The report is due on {day}.\n\n{name}",
    ),
    (
        "Contract for {project}",
        "Hi,\n\nlegal has returned the {project} contract with two remarks. Please sign it after {day}.\n\n{name}",
    ),
    (
        "{project} demo went well",
        "Hi,\n\nthe {project} demo was a success, they want to see more on {day}. Well done!\n\n{name}",
    ),
)
MEETINGS = (
    "{project} stand-up",
    "{project} planning",
    "{project} retrospective",
    "Budget review for {project}",
    "Interview for {project}",
    "Roadmap of {project}",
    "Design critique of {project}",
    "Risk workshop on {project}",
    "Coffee about {project}",
    "Customer call on {project}",
)
TASKS = {
    "Back end": (
        ("Fix", "Speed up", "Refactor", "Write tests for", "Document", "Monitor"),
        (
            "the login service",
            "the payment queue",
            "the search index",
            "the nightly export",
            "the rate limiter",
            "the session cache",
            "the invoice generator",
            "the upload endpoint",
            "the audit log",
            "the billing migration",
            "the webhook retries",
            "the report scheduler",
            "the permission check",
            "the address validation",
            "the backup job",
            "the currency converter",
            "the notification worker",
            "the health endpoint",
        ),
    ),
    "Front end": (
        ("Fix", "Restyle", "Simplify", "Translate", "Add keyboard support to", "Measure"),
        (
            "the checkout page",
            "the sign-up form",
            "the date picker",
            "the navigation bar",
            "the settings dialog",
            "the order history",
            "the image gallery",
            "the cookie banner",
            "the help panel",
            "the price table",
            "the profile page",
            "the error screen",
            "the filter sidebar",
            "the comment box",
            "the landing page",
            "the map view",
            "the password reset page",
            "the file list",
        ),
    ),
    "Design": (
        ("Sketch", "Revise", "Present", "Test", "Illustrate", "Prepare assets for"),
        (
            "the welcome tour",
            "the icon set",
            "the dark theme",
            "the annual report",
            "the trade fair booth",
            "the newsletter layout",
            "the mobile menu",
            "the empty states",
            "the brand guide",
            "the pricing page",
            "the product video",
            "the dashboard cards",
            "the onboarding emails",
            "the print catalogue",
            "the colour palette",
            "the app store pictures",
            "the loading animation",
            "the survey form",
        ),
    ),
}
FIRST_NAMES = (
    "Adele", "Boris", "Celia", "Dario", "Edith", "Felix", "Gwen", "Hassan", "Irene", "Jorge",
    "Klara", "Lucas", "Mona", "Nils", "Olga", "Pablo", "Ruth", "Simon", "Tessa", "Viktor",
)  # fmt: skip
LAST_NAMES = (
    "Abbott", "Bianchi", "Castro", "Drummond", "Eklund", "Fontaine", "Gruber", "Hoffmann", "Ibarra", "Jensen",
    "Kaminski", "Laurent", "Marsh", "Novak", "Okafor", "Park", "Quinn", "Romero", "Schmidt", "Takeda",
)  # fmt: skip
FIRMS = ("brightfield", "coppermill", "deltaworks", "evergrain", "fairwind", "glasshouse", "hillcrest", "ironbridge")
NOTES = (
    "Asked for a price list.",
    "Had a long call about delivery times.",
    "Wants a demo for the whole team.",
    "Is comparing us with another vendor.",
    "Met at the trade fair.",
    "Needs a quote for ten seats.",
    "Was unhappy with the response time.",
    "Interested in a yearly contract.",
)
